package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/api/client"
	"berth/api/wire"
)

// Requests that come to a real node at a pace, until it has written a snapshot
// meanwhile and its log is as long as it gets.
const (
	writeEvery = 2 * time.Millisecond
	writers    = 64     // Requests at once, at most; one that finds no room is late.
	fullLog    = 65_536 // Entries that a log keeps behind a snapshot.
	writeLimit = 10 * time.Minute
	writesOrg  = "bench-writes"
	writesTags = 16
)

// Writes is how long requests took that each change the state.
type Writes struct {
	Requests  int    `json:"requests"`
	Entries   int    `json:"entries"`   // Of the log, that came of them.
	Behind    int    `json:"behind"`    // Of those, behind the newest snapshot.
	Snapshots int    `json:"snapshots"` // Written meanwhile.
	Elections int    `json:"elections"`
	Late      Spread `json:"from_due"` // From when each was due to its answer.
}

// asRoot returns a client for all that the node can be asked.
func (n *node) asRoot() (*client.Client, error) {
	token, err := os.ReadFile(filepath.Join(n.data(), "root_token"))
	return n.client.WithToken(strings.TrimSpace(string(token))), err
}

// snapshots returns the names of the snapshots that the node has finished.
func (n *node) snapshots() ([]string, error) {
	found, err := filepath.Glob(filepath.Join(n.data(), "raft", "snapshots", "*"))
	return slices.DeleteFunc(found, func(name string) bool { return strings.HasSuffix(name, ".tmp") }), err
}

// writing is a series of requests to a node.
type writing struct {
	client *client.Client
	clock  func() time.Time
	room   chan struct{}

	mu     sync.Mutex
	times  []time.Duration
	failed error // The first.
}

// ask asks for a change that was due at a time, and notes how long it took.
func (w *writing) ask(ctx context.Context, i int, due time.Time) {
	_, err := w.client.SetQuota(ctx, wire.NewQuota{
		Org: writesOrg, Tag: fmt.Sprintf("tag-%d", i%writesTags), MaxConcurrent: 1 + i%1000,
	})
	took := w.clock().Sub(due)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times = append(w.times, took)
	if w.failed == nil {
		w.failed = err
	}
}

// run asks at a pace until enough says so, and waits for the answers.
func (w *writing) run(ctx context.Context, enough func() (bool, error)) error {
	var asked sync.WaitGroup
	defer asked.Wait()
	due := w.clock()
	for i := 0; ; i++ {
		if i%int(time.Second/writeEvery) == 0 {
			if done, err := enough(); done || err != nil {
				return err
			}
		}
		due = due.Add(writeEvery)
		if wait := due.Sub(w.clock()); wait > 0 {
			if err := rest(ctx, wait); err != nil {
				return err
			}
		}
		select {
		case w.room <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		asked.Go(func() {
			defer func() { <-w.room }()
			w.ask(ctx, i, due)
		})
	}
}

// writes has the restarted node write a snapshot of the whole state while
// requests come.
func (m *measurement) writes(ctx context.Context) error {
	if m.node == nil {
		return nil
	}
	c, err := m.node.asRoot()
	if err != nil {
		return err
	}
	_, err = c.CreateUser(ctx, wire.NewUser{
		Email: writesOrg + "@example.com", Password: "correct horse battery staple", OrgSlug: writesOrg, OrgName: writesOrg,
	})
	if err != nil {
		return err
	}
	before, err := c.State(ctx, false)
	if err != nil {
		return err
	}
	had, err := m.node.snapshots()
	if err != nil {
		return err
	}
	var r Writes
	var from uint64 // Where the newest snapshot was seen.
	limit := m.cfg.Now().Add(writeLimit)
	w := &writing{client: c, clock: m.cfg.Now, room: make(chan struct{}, writers)}
	err = w.run(ctx, func() (bool, error) {
		now, err := m.node.snapshots()
		if err != nil {
			return true, err
		}
		if m.cfg.Now().After(limit) {
			return true, fmt.Errorf("in %v the node has written %d snapshots, and its log is not full", writeLimit, r.Snapshots)
		}
		state, err := c.State(ctx, false)
		if err != nil {
			return true, err
		}
		if fresh := slices.DeleteFunc(now, func(name string) bool { return slices.Contains(had, name) }); len(fresh) > 0 {
			had, from = append(had, fresh...), state.Index
			r.Snapshots += len(fresh)
		}
		return r.Snapshots > 0 && state.Index-from >= fullLog, nil
	})
	if err = errors.Join(err, w.failed); err != nil {
		return err
	}
	after, err := c.State(ctx, false)
	if err != nil {
		return err
	}
	r.Requests, r.Late = len(w.times), spreadOf(w.times)
	r.Entries, r.Behind = int(after.Index-before.Index), int(after.Index-from) //nolint:gosec // They are few.
	r.Elections = int(after.Term - before.Term)                                //nolint:gosec // Terms are few.
	m.report.Node.Writes = r
	return m.node.end()
}

// replay starts the node with all of that in its log.
func (m *measurement) replay(ctx context.Context) error {
	if m.node == nil {
		return nil
	}
	took, err := m.node.start(ctx)
	if err != nil {
		return err
	}
	m.report.Node.ReplayS = took.Seconds()
	return m.node.end()
}
