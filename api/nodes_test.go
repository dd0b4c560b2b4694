package api_test

import (
	"context"
	"testing"

	"berth/api"
	"berth/compute"
)

func TestRemovalThatCostsTheQuorumIsRefused(t *testing.T) {
	var refusal error
	w := newWorld(t, func(c *api.Config) {
		c.CheckRemoval = func(_ context.Context, id compute.NodeID) error {
			if id != nodeID(3) {
				t.Errorf("asked about %s", id)
			}
			return refusal
		}
	})
	path := "/admin/nodes/" + nodeID(3).String()
	refusal = compute.Errorf(compute.CodeConflict, "Bring n2 back.").Named("quorum_lost")
	w.want(409, "quorum_lost", "DELETE", path, rootToken, nil)
	if _, ok := w.machine.View().Node(nodeID(3)); !ok {
		t.Fatal("the node is removed")
	}
	refusal = nil
	w.want(403, "", "DELETE", path, w.bobKey, nil)
	w.mustDo("DELETE", path, rootToken, nil, nil)
	if _, ok := w.machine.View().Node(nodeID(3)); ok {
		t.Fatal("the node is still there")
	}
	w.mustDo("DELETE", path, rootToken, nil, nil) // The first answer may have been lost.
	w.want(404, "", "DELETE", "/admin/nodes/"+nodeID(99).String(), rootToken, nil)
}
