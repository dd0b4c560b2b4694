package node

import (
	"testing"

	"berth/cluster"
	"berth/compute"
	"berth/fsm"
)

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
