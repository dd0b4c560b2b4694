package node

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth/attempt"
	"berth/compute"
	"berth/fsm"
)

// TestGoneBeforeBack has nodes fall silent and others come back by one look: all of
// the first are recorded before any of the others, however long one of them takes.
func TestGoneBeforeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 6
		l := newLedger(t)
		id := func(i int) compute.NodeID { return compute.NodeID{UUID: compute.UUID{200, byte(i)}} }
		silent := map[compute.NodeID]time.Duration{}
		l.must(fsm.CreateJoinToken{Op: l.nextOp(), Actor: fsm.Actor{Root: true}, Token: compute.JoinToken{
			ID: "t", Hash: compute.Hash{3}, Uses: nodes, ExpiresAt: l.machine.View().Now().Add(time.Hour),
		}})
		for i := range nodes {
			l.must(fsm.RegisterNode{
				Node: compute.Node{ID: id(i), Name: string(rune('a' + i))}, TokenID: "t", TokenHash: compute.Hash{3},
			})
			was := compute.NodeDown
			if i%2 == 0 {
				was, silent[id(i)] = compute.NodeUp, attempt.NodeTTL+1
			} else {
				silent[id(i)] = 0
			}
			l.must(fsm.SetNodeState{Term: 1, Node: id(i), State: was})
		}
		now := l.machine.View().Now().Time()
		w := &watch{
			leader: &leader{
				machine: l.machine, now: func() time.Time { return now }, logger: slog.New(slog.DiscardHandler),
			},
			silent: silent,
		}
		var mu sync.Mutex
		var recorded []compute.NodeState
		w.note = func(_ context.Context, term uint64, c attempt.Change) uint64 {
			if c.State == compute.NodeDown {
				<-time.After(time.Second)
			}
			mu.Lock()
			defer mu.Unlock()
			recorded = append(recorded, c.State)
			l.must(fsm.SetNodeState{Term: term, Node: c.Node, State: c.State})
			return l.index
		}
		w.act(t.Context(), 1)
		if len(recorded) != len(silent) {
			t.Fatalf("recorded are %v, want %d", recorded, len(silent))
		}
		for i, state := range recorded {
			if want := i < len(silent)/2; want != (state == compute.NodeDown) {
				t.Errorf("recorded are %v, want those that are gone before any that is back", recorded)
				break
			}
		}
	})
}
