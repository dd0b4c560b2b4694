package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"berth/api/client"
	"berth/api/wire"
)

// Requests arrive at a real node at a fixed rate until it has written a
// snapshot meanwhile and its restart has entries to apply.
const (
	writeEvery = 2 * time.Millisecond
	writers    = 64 // Maximum requests in flight; one beyond is late.
	writesOrg  = "bench-writes"
	writesTags = 16
)

// Writes measures requests that each change the state.
type Writes struct {
	Requests  int     `json:"requests"`   // Answered requests.
	LastedS   float64 `json:"lasted_s"`   // From the first due time to the last answer.
	Entries   int     `json:"entries"`    // Log entries meanwhile.
	Behind    int     `json:"behind"`     // Log entries after the newest snapshot.
	Snapshots int     `json:"snapshots"`  // Written meanwhile.
	SnapshotS float64 `json:"snapshot_s"` // Their total time, to the last byte.

	InSnapshot Asked `json:"requests_in_snapshot"` // Due while a snapshot was written.
	Otherwise  Asked `json:"requests_otherwise"`   // The others. Old entries are deleted right after a snapshot.
}

// Asked is the latency of a group of requests.
type Asked struct {
	Requests int    `json:"requests"`
	Late     Spread `json:"from_due"` // From the due time to the answer.
}

// asRoot returns a client with the root token.
func (n *node) asRoot() (*client.Client, error) {
	token, err := os.ReadFile(filepath.Join(n.data(), "root_token"))
	return n.client.WithToken(strings.TrimSpace(string(token))), err
}

// request is an answered request.
type request struct {
	due  time.Time
	took time.Duration // From due to the answer.
}

// writing is a series of requests to a node.
type writing struct {
	change func(ctx context.Context, i int) error
	clock  func() time.Time
	slots  chan struct{} // Limits the requests in flight.

	mu       sync.Mutex
	answered []request
	failed   error // The first failure.
}

// send sends one change that was due at a time, and records its latency.
func (w *writing) send(ctx context.Context, i int, due time.Time) {
	err := w.change(ctx, i)
	took := w.clock().Sub(due)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.answered = append(w.answered, request{due, took})
	} else if w.failed == nil {
		w.failed = fmt.Errorf("request %d: %w", i, err)
	}
}

// failure returns the error of the first failed request.
func (w *writing) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// run sends requests at a fixed rate until enough is closed, ctx ends or a request
// fails, and waits for the answers.
func (w *writing) run(ctx context.Context, enough <-chan struct{}) error {
	var asked sync.WaitGroup
	due := w.clock()
	for i := 0; w.awaitSlot(ctx, enough, due.Add(writeEvery).Sub(w.clock())) && w.failure() == nil; i++ {
		due = due.Add(writeEvery)
		at := due
		asked.Go(func() {
			defer func() { <-w.slots }()
			w.send(ctx, i, at)
		})
	}
	asked.Wait()
	return errors.Join(ctx.Err(), w.failed)
}

// awaitSlot waits for the given time and then for a slot. It reports whether
// there is a slot and more requests are wanted.
func (w *writing) awaitSlot(ctx context.Context, enough <-chan struct{}, wait time.Duration) bool {
	select {
	case <-time.After(wait):
	case <-enough:
		return false
	case <-ctx.Done():
		return false
	}
	select {
	case w.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// report separates the requests that were due while a snapshot was written.
func (w *writing) report(seen *watch) Writes {
	r := Writes{Requests: len(w.answered), Snapshots: len(seen.written), SnapshotS: seen.took().Seconds()}
	var first, last time.Time
	var in, out []time.Duration
	for i, a := range w.answered {
		if i == 0 || a.due.Before(first) {
			first = a.due
		}
		if end := a.due.Add(a.took); end.After(last) {
			last = end
		}
		if seen.during(a.due) {
			in = append(in, a.took)
		} else {
			out = append(out, a.took)
		}
	}
	r.LastedS = last.Sub(first).Seconds()
	r.InSnapshot = Asked{Requests: len(in), Late: spreadOf(in)}
	r.Otherwise = Asked{Requests: len(out), Late: spreadOf(out)}
	return r
}

// writes has the restarted node write a snapshot of the whole state while
// requests arrive, and ends the node. The report includes results up to an
// error.
func (m *measurement) writes(ctx context.Context) error {
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
	seen, err := newWatch(m.node.data(), m.cfg.Now)
	if err != nil {
		return err
	}
	w := &writing{clock: m.cfg.Now, slots: make(chan struct{}, writers)}
	w.change = func(ctx context.Context, i int) error {
		_, err := c.SetQuota(ctx, wire.NewQuota{
			Org: writesOrg, Tag: fmt.Sprintf("tag-%d", i%writesTags), MaxConcurrent: 1 + i%1000,
		})
		return err
	}
	err = w.watched(ctx, seen, min(m.cfg.Executions, tailEntries), func(ctx context.Context) (uint64, error) {
		state, err := c.State(ctx, false)
		return state.Index, err
	})
	after, lost := c.State(ctx, false)
	err = errors.Join(err, lost, m.node.end(), seen.poll())
	r := w.report(seen)
	if lost == nil {
		r.Entries = int(after.Index - before.Index)                  //nolint:gosec // They are few.
		r.Behind = int(after.Index - min(after.Index, seen.covered)) //nolint:gosec // They are few.
	}
	m.report.Node.Writes = r
	return err
}

// watched sends requests until the watch has seen enough.
func (w *writing) watched(
	ctx context.Context, seen *watch, entries int, index func(context.Context) (uint64, error),
) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	enough := make(chan struct{})
	var blind error
	go func() {
		defer close(enough)
		blind = seen.until(watching, entries, index)
	}()
	err := w.run(ctx, enough)
	stop()
	<-enough
	return errors.Join(err, blind)
}

// replay starts the node with all of that in its log.
func (m *measurement) replay(ctx context.Context) error {
	took, err := m.node.start(ctx)
	if err != nil {
		return err
	}
	m.report.Node.ReplayS = took.Seconds()
	return m.node.end()
}
