package leader

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth/attempt"
	"berth/compute"
	"berth/fsm/command"
	"berth/node/statetest"
)

// TestGoneBeforeBack has three nodes fall silent and three others come back in one
// scan. All silent ones are recorded before any that is back, however long that takes.
// If one of them is not taken, no node that is back is recorded. Nor is a node that
// falls silent meanwhile.
func TestGoneBeforeBack(t *testing.T) {
	const gone, back = compute.NodeDown, compute.NodeUp
	for name, test := range map[string]struct {
		refused int  // So many of those that are gone are not taken.
		fades   bool // One that is back falls silent before all that are gone are taken.
		want    []compute.NodeState
	}{
		"all are taken":    {0, false, []compute.NodeState{gone, gone, gone, back, back, back}},
		"one is not taken": {1, false, []compute.NodeState{gone, gone}},
		"one fades":        {0, true, []compute.NodeState{gone, gone, gone, back, back}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := recordedOf(t, test.refused, test.fades); !slices.Equal(got, test.want) {
					t.Errorf("recorded are %v, want %v", got, test.want)
				}
			})
		})
	}
}

// recordedOf returns a leader's records of six nodes, half of them gone and half
// of them back, in the order in which the state takes them.
func recordedOf(t *testing.T, refused int, fades bool) (recorded []compute.NodeState) {
	t.Helper()
	const nodes = 6
	l := statetest.New(t)
	l.Must(command.CreateJoinToken{Op: l.NextOp(), Actor: command.Actor{Root: true}, Token: compute.JoinToken{
		ID: "t", Hash: compute.Hash{3}, Uses: nodes, ExpiresAt: l.Machine.View().Now().Add(time.Hour),
	}})
	silent := map[compute.NodeID]attempt.Silence{}
	last := compute.NodeID{UUID: compute.UUID{200, nodes - 1}} // One that is back.
	for i := range nodes {
		id := compute.NodeID{UUID: compute.UUID{200, byte(i)}}
		was := compute.NodeDown
		if silent[id] = (attempt.Silence{Heard: true}); i%2 == 0 {
			was, silent[id] = compute.NodeUp, attempt.Silence{For: attempt.NodeTTL + 1, Heard: true}
		}
		l.Must(command.RegisterNode{
			Node: compute.Node{ID: id, Name: string(rune('a' + i))}, TokenID: "t", TokenHash: compute.Hash{3},
		})
		l.Must(command.SetNodeState{Term: 1, Node: id, State: was})
	}
	now := l.Machine.View().Now().Time()
	var w *watch
	var mu sync.Mutex
	note := func(_ context.Context, term uint64, c attempt.Change) uint64 {
		if c.State == compute.NodeDown {
			<-time.After(time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		if refused > 0 {
			refused--
			return 0
		}
		if fades {
			w.mu.Lock()
			w.silent[last] = attempt.Silence{For: attempt.NodeTTL + 1, Heard: true}
			w.mu.Unlock()
		}
		recorded = append(recorded, c.State)
		l.Must(command.SetNodeState{Term: term, Node: c.Node, State: c.State})
		return l.Index
	}
	w = &watch{
		Leader: &Leader{
			Machine: l.Machine, Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler),
		},
		silent: silent, note: note,
	}
	w.act(t.Context(), 1)
	return recorded
}
