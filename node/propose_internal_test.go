package node

import (
	"context"
	"testing"

	"berth/cluster"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/node/statetest"
)

// TestAllowsAsksTheNewestState holds that a node whose state is behind, as after its start,
// refuses no command that the cluster allows: an executor forgets an outcome that is refused.
func TestAllowsAsksTheNewestState(t *testing.T) {
	behind, cmd := fsm.New().View(), command.FinishAttempt{Outcome: compute.Outcome{Series: &compute.Hash{}}}
	state := statetest.New(t)
	state.Must(command.RegisterNode{Node: compute.Node{ID: state.Node, Name: "n1", Format: format.Newest}})
	state.Must(command.SetFormat{Term: 1, Format: format.Newest})
	current := state.Machine.View()
	if behind.Allows(cmd) == nil || current.Allows(cmd) != nil {
		t.Fatalf("a state of format %d allows it: %v, one of %d: %v", behind.Format(), behind.Allows(cmd), current.Format(), current.Allows(cmd))
	}
	down := compute.Errorf(compute.CodeUnavailable, "no leader")
	for name, test := range map[string]struct {
		seen, newest *fsm.View
		unread       error
		want         compute.Code
	}{
		"behind":            {behind, current, nil, ""},
		"an old cluster":    {behind, behind, nil, compute.CodeConflict},
		"behind, no leader": {behind, nil, down, compute.CodeUnavailable},
		"current":           {current, nil, down, ""},
	} {
		newest := func(context.Context) (*fsm.View, error) { return test.newest, test.unread }
		err := allows(t.Context(), test.seen, newest, cmd)
		if (err == nil) != (test.want == "") || err != nil && compute.CodeOf(err) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStrangersProposeNothing refuses a node without a good token before anything is
// proposed: there is no cluster behind this registry.
func TestStrangersProposeNothing(t *testing.T) {
	r := registry{proposer{&Node{machine: fsm.New()}}}
	for _, token := range []string{"", "0123456789"} {
		err := r.Admit(t.Context(), cluster.Admission{
			TokenID: token, Node: compute.Node{ID: compute.NodeID{UUID: compute.UUID{1}}, Name: "n"},
		})
		if compute.CodeOf(err) != compute.CodeForbidden {
			t.Errorf("with the token %q: %v", token, err)
		}
	}
}
