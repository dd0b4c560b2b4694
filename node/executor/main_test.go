package executor_test

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"berth/boottime"
	"berth/compute"
	"berth/node/executor"
	"berth/node/executor/docker"
	_ "berth/node/executor/early"
	"berth/node/executor/mount"
	"berth/node/executor/prepare"
	"berth/node/logs"
)

// patience is the time limit of every wait, enough for a busy machine.
const patience = 3 * time.Minute

// state is a Source, a Reporter and Bundles: a minimal cluster for an executor.
type state struct {
	mu sync.Mutex

	work      map[compute.ExecutionID]compute.Work
	index     uint64
	changed   chan struct{}
	starts    []compute.AttemptStart
	outcomes  []compute.Outcome
	readiness []compute.Readiness
	finish    func(compute.Outcome) error // The answer of FinishAttempt; nil accepts every outcome.
	bundles   map[compute.Hash]*compute.Bundle
	fetching  chan bool // Receives a value when a bundle is requested and one before it is returned, unless nil.
	noContact bool      // There has been no contact with the leader.
	reads     int       // Number of reads of the work.
}

func newState() *state {
	return &state{
		work: make(map[compute.ExecutionID]compute.Work), changed: make(chan struct{}),
		bundles: make(map[compute.Hash]*compute.Bundle), index: 1,
	}
}

func (s *state) Work(ctx context.Context, after uint64) (executor.Assigned, error) {
	for {
		s.mu.Lock()
		work, index, changed := slices.Collect(maps.Values(s.work)), s.index, s.changed
		contact := boottime.Now()
		if s.noContact {
			contact = 0
		}
		s.reads++
		s.mu.Unlock()
		if index > after {
			return executor.Assigned{Work: work, Index: index, Contact: contact}, nil
		}
		select {
		case <-ctx.Done():
			return executor.Assigned{}, ctx.Err()
		case <-changed:
		}
	}
}

func (s *state) StartAttempt(_ context.Context, start compute.AttemptStart) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts = append(s.starts, start)
	return nil
}

func (s *state) FinishAttempt(_ context.Context, outcome compute.Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finish != nil {
		if err := s.finish(outcome); err != nil {
			return err
		}
	}
	s.outcomes = append(s.outcomes, outcome)
	delete(s.work, outcome.Execution)
	s.touch()
	return nil
}

func (s *state) SetReady(_ context.Context, r compute.Readiness) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readiness = append(s.readiness, r)
	return nil
}

func (s *state) Bundle(ctx context.Context, ref compute.BundleRef) (*compute.Bundle, error) {
	for _, given := range []bool{false, true} {
		if s.fetching == nil {
			break
		}
		select {
		case s.fetching <- given:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.bundles[ref.Hash]; ok {
		return b, nil
	}
	return nil, compute.Errorf(compute.CodeNotFound, "no such bundle")
}

// touch signals a change. The caller holds the lock.
func (s *state) touch() {
	s.index++
	close(s.changed)
	s.changed = make(chan struct{})
}

// update changes the state and signals the change.
func (s *state) update(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	s.touch()
}

func (s *state) outcome(id compute.ExecutionID) *compute.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.outcomes {
		if s.outcomes[i].Execution == id {
			return &s.outcomes[i]
		}
	}
	return nil
}

func (s *state) started(id compute.ExecutionID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.starts, func(a compute.AttemptStart) bool { return a.Execution == id })
}

// await polls until ok returns true.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	awaitWithin(t, what, patience, ok)
}

// awaitWithin is await for what takes longer.
func awaitWithin(t testing.TB, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s did not happen in %v", what, limit)
		}
	}
}

// node is an executor that runs on a state.
type node struct {
	*state
	t    testing.TB
	cfg  executor.Config
	stop func() // Stops the executor of the last run.

	executor *executor.Executor // Executor of the last run.
}

// newNode returns a node whose executor runs until the test ends.
func newNode(t testing.TB, change func(*executor.Config)) *node {
	t.Helper()
	n := &node{state: newState(), t: t, cfg: executor.Config{Config: prepare.Config{
		DataDir: dataDir(t), Node: compute.NodeID{UUID: compute.UUID(uuid.New())},
		Network: compute.NetworkNone, StopGrace: 2 * time.Second, ScratchMiB: 64,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}}}
	if change != nil {
		change(&n.cfg)
	}
	n.run()
	return n
}

// as returns the node for a subtest.
func (n *node) as(t testing.TB) *node {
	sub := *n
	sub.t = t
	return &sub
}

// run runs an executor until the returned function is called or the test ends.
func (n *node) run() (stop func()) {
	n.t.Helper()
	e, err := executor.Open(n.cfg, n.state, n.state, n.state)
	if err != nil {
		n.t.Fatal(err)
	}
	n.executor = e
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
		if err := e.Close(); err != nil {
			n.t.Error(err)
		}
	})
	n.stop = stop
	n.t.Cleanup(stop)
	return stop
}

// dataDir returns a directory that is removed once the supervisors of ended attempts,
// which outlive the executor, have left it.
func dataDir(t testing.TB) string {
	dir, err := os.MkdirTemp("", "executor") //nolint:usetesting // Its removal would fail at once.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { await(t, "the data directory to be removed", func() bool { return os.RemoveAll(dir) == nil }) })
	return dir
}

// newWork returns an attempt to execute the bundle.
func (n *node) newWork(bundle compute.Bundle) compute.Work {
	n.t.Helper()
	data, err := bundle.Encode()
	if err != nil {
		n.t.Fatal(err)
	}
	id := compute.ExecutionID{UUID: compute.UUID(uuid.Must(uuid.NewV7()))}
	return compute.Work{
		Attempt: &compute.Attempt{Execution: id, Epoch: 1, Node: n.cfg.Node, PlaceIndex: 1},
		Execution: &compute.Execution{
			ID: id, Status: compute.StatusStarting, Timeout: patience, DisconnectGrace: 10 * time.Minute,
			Network: compute.NetworkNone,
			Request: compute.Request{VCPUMilli: 1000, MemoryMiB: 512},
			Bundle:  compute.BundleRef{Size: int64(len(data)), Inline: data},
		},
	}
}

// place assigns the work to the node.
func (n *node) place(w compute.Work) compute.ExecutionID {
	n.update(func() { n.work[w.Execution.ID] = w })
	return w.Execution.ID
}

// end waits for the outcome.
func (n *node) end(id compute.ExecutionID) compute.Outcome {
	n.t.Helper()
	await(n.t, "the end of the execution", func() bool { return n.outcome(id) != nil })
	return *n.outcome(id)
}

// execute executes the bundle to its end and returns the outcome and the output.
func (n *node) execute(bundle compute.Bundle, change func(*compute.Work)) (compute.Outcome, string) {
	n.t.Helper()
	w := n.newWork(bundle)
	if change != nil {
		change(&w)
	}
	id := n.place(w)
	return n.end(id), n.output(id)
}

func TestMain(m *testing.M) {
	docker.TakeOver()
	mount.TakeOver()
	if file := os.Getenv(standIn); file != "" {
		fmt.Fprintln(os.Stderr, runStandIn(file))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Attempts implements logs.State. Every execution has one attempt.
func (s *state) Attempts(_ context.Context, id compute.ExecutionID) ([]compute.Attempt, *logs.Final, error) {
	return []compute.Attempt{{Execution: id, Epoch: 1, Ended: s.outcome(id) != nil}}, nil, nil
}

// Changed implements logs.State.
func (s *state) Changed() <-chan struct{} { return nil }

// Up implements logs.State. There is one node.
func (s *state) Up(compute.NodeID) bool { return true }

// output returns the execution's log, including Berth's own lines.
func (n *node) output(id compute.ExecutionID) string {
	n.t.Helper()
	f := logs.NewFollower(logs.FollowerConfig{Store: logs.Open(n.cfg.DataDir, nil), State: n.state})
	tail, err := f.Tail(context.Background(), id, logs.MaxTail)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(tail.Combined)
}

// says reports whether a line of the execution's whole log has text in it.
func (n *node) says(id compute.ExecutionID, text string) bool {
	n.t.Helper()
	f := logs.NewFollower(logs.FollowerConfig{Store: logs.Open(n.cfg.DataDir, nil), State: n.state})
	const page = 10_000
	for after := uint64(0); ; {
		lines, err := f.Read(context.Background(), id, after, page)
		if err != nil {
			n.t.Fatal(err)
		}
		if slices.ContainsFunc(lines, func(l logs.Line) bool { return strings.Contains(string(l.Text), text) }) {
			return true
		}
		if len(lines) == 0 {
			return false
		}
		after = lines[len(lines)-1].Seq
	}
}

// diskUse returns the size of the files below dir in bytes.
func diskUse(t testing.TB, dir string) (size int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			size += info.Sys().(*syscall.Stat_t).Blocks * 512 // Scratch space is sparse.
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}
