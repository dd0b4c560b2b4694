package fsm

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"berth/fault"
	"berth/fsm/command"
	"berth/fsm/store"
)

// FSM applies committed entries to the state and publishes a View after each
// batch. Raft calls Apply, ApplyBatch, StoreConfiguration, Snapshot and
// Restore from one goroutine; everything else may be called from any.
type FSM struct {
	state *state // Only Raft's apply goroutine touches it.
	view  atomic.Pointer[View]

	guard  Guard
	poison *PoisonError // Why state is half changed; nil while it is intact.

	mu sync.Mutex

	// waiting has a channel per index that someone waits to see passed.
	waiting store.Table[uint64, chan struct{}]

	checkpoints checkpointLog
}

var (
	_ raft.BatchingFSM        = (*FSM)(nil)
	_ raft.ConfigurationStore = (*FSM)(nil)
)

// New returns a state machine with an empty state.
func New() *FSM {
	f := newFSM(newState())
	f.publish()
	return f
}

// newFSM returns a state machine with a state that is not published yet.
func newFSM(s *state) *FSM {
	return &FSM{state: s, waiting: store.NewTable[uint64, chan struct{}](cmp.Compare[uint64])}
}

// View returns the newest published view. It is never nil and never waits.
func (f *FSM) View() *View { return f.view.Load() }

// Wait returns the first view seen that has index in it.
func (f *FSM) Wait(ctx context.Context, index uint64) (*View, error) {
	if v := f.View(); v.Index() >= index {
		return v, nil
	}
	select {
	case <-f.Changed(index - 1):
		return f.View(), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for index %d: %w", index, context.Cause(ctx))
	}
}

// Changed returns a channel that is closed once the index of View is above
// after. Calls with the same index share one channel, so asking again costs
// nothing.
func (f *FSM) Changed(after uint64) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, ok := f.waiting.Get(after); ok {
		return c
	}
	c := make(chan struct{})
	if f.View().Index() > after { // Under mu: publish cannot have missed c.
		close(c)
		return c
	}
	f.waiting.Set(after, c)
	return c
}

// publish makes the state as it is now the newest view.
func (f *FSM) publish() {
	f.mustBeWhole()
	v := f.state.publish()
	f.view.Store(v)
	f.mu.Lock()
	defer f.mu.Unlock()
	var passed []uint64 // The table must not change in the loop.
	for after, c := range f.waiting.All() {
		if after >= v.Index() {
			break
		}
		close(c)
		passed = append(passed, after)
	}
	for _, after := range passed {
		f.waiting.Remove(after)
	}
}

// ApplyBatch applies committed entries and publishes one view. The response
// to a command entry is [][]byte: one encoded Result per frame. It panics with
// a *PoisonError at an entry that cannot be applied.
func (f *FSM) ApplyBatch(logs []*raft.Log) []any {
	fault.Point("fsm.apply.before")
	out := make([]any, len(logs))
	for i, l := range logs {
		if l.Type == raft.LogCommand {
			out[i] = encodeResults(f.apply(l.Index, l.Data))
		} else {
			f.state.view.meta.Index = l.Index
		}
		f.checkpoints.record(l.Index, f.state.view.Hash)
	}
	fault.Point("fsm.apply.after")
	f.publish()
	return out
}

// Apply applies one committed entry, as ApplyBatch does.
func (f *FSM) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// StoreConfiguration records that an entry with a change of the cluster's
// configuration was committed, so that waiting for its index ends.
func (f *FSM) StoreConfiguration(index uint64, _ raft.Configuration) {
	f.mustBeWhole()
	f.state.view.meta.Index = index
	f.publish()
}

// ApplyFrames applies frames as one entry and returns the result of each. Tests and
// simulations drive the state with it, without Raft.
func (f *FSM) ApplyFrames(index uint64, frames ...[]byte) []command.Result {
	var entry []byte
	for _, frame := range frames {
		entry = append(entry, frame...)
	}
	return f.ApplyEntries(index, entry)[0]
}

// ApplyEntries applies entries, the first of which has index first, as one batch
// that publishes one view, and returns the result of each frame of each. It
// drives the state as Raft does, without Raft.
func (f *FSM) ApplyEntries(first uint64, entries ...[]byte) [][]command.Result {
	out := make([][]command.Result, len(entries))
	for i, entry := range entries {
		out[i] = f.apply(first+uint64(i), entry)
	}
	f.publish()
	return out
}

// Snapshot returns the newest view for Raft to store. It copies nothing.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
	if f.poison != nil {
		return nil, f.poison
	}
	return &persister{f.View()}, nil
}

// Restore replaces the state with the one that a snapshot holds. A snapshot
// that is damaged, of another version or breaks an invariant leaves the state
// as it was.
func (f *FSM) Restore(r io.ReadCloser) error {
	fault.Point("fsm.restore.begin")
	s, err := readSnapshot(r)
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("restore snapshot: %w", err)
	}
	fault.Point("fsm.restore.read")
	f.state, f.poison = s, nil
	f.checkpoints.clear()
	f.publish()
	return nil
}

func encodeResults(results []command.Result) [][]byte {
	out := make([][]byte, len(results))
	for i := range results {
		out[i] = store.MustEncode(&results[i])
	}
	return out
}
