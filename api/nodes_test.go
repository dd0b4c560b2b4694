package api_test

import (
	"context"
	"testing"
	"time"

	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
)

func TestRemovalThatCostsTheQuorumIsRefused(t *testing.T) {
	var refusal, copies error
	var beside []compute.NodeID
	w := newWorld(t, func(c *handler.Config) {
		c.CheckCopies = func(context.Context, compute.NodeID) ([]compute.NodeID, error) { return beside, copies }
		c.CheckRemoval = func(_ context.Context, id compute.NodeID) error {
			if id != nodeID(3) {
				t.Errorf("asked about %s", id)
			}
			return refusal
		}
	})
	w.upgrade()
	path := "/admin/nodes/" + nodeID(3).String()
	refusal = compute.Errorf(compute.CodeConflict, "Bring n2 back.").Named("quorum_lost")
	w.want(409, "quorum_lost", "DELETE", path, rootToken, nil)
	if _, ok := w.machine.View().Node(nodeID(3)); !ok {
		t.Fatal("the node is removed")
	}
	w.want(409, "quorum_lost", "DELETE", path+"?force=true", rootToken, nil)
	refusal, copies = nil, compute.Errorf(compute.CodeConflict, "Wait for n2.").Named("copies_missing")
	w.want(403, "", "DELETE", path, w.bobKey, nil)
	w.want(409, "copies_missing", "DELETE", path, rootToken, nil)
	copies, beside = nil, []compute.NodeID{nodeID(98)} // A node that was removed since it was asked.
	w.want(409, "copies_missing", "DELETE", path, rootToken, nil)
	w.mustDo("DELETE", path+"?force=true", rootToken, nil, nil)
	if _, ok := w.machine.View().Node(nodeID(3)); ok {
		t.Fatal("the node is still there")
	}
	w.mustDo("DELETE", path, rootToken, nil, nil) // The first answer may have been lost.
	w.want(404, "", "DELETE", "/admin/nodes/"+nodeID(99).String(), rootToken, nil)
}

func TestDrainWithADeadline(t *testing.T) {
	w := newWorld(t)
	path := "/admin/nodes/" + nodeID(1).String()
	var n wire.Node
	w.mustDo("POST", path+"/drain", rootToken, nil, &n)
	if !n.Drained || n.DrainBy != nil {
		t.Errorf("drained as %+v", n)
	}
	w.mustDo("POST", path+"/drain", rootToken, map[string]any{"deadline": 600}, &n)
	if want := compute.InstantOf(w.clock().Add(10 * time.Minute)); n.DrainBy == nil || *n.DrainBy != want {
		t.Errorf("drained by %v, want %s", n.DrainBy, want)
	}
	w.mustDo("POST", path+"/undrain", rootToken, nil, &n)
	if n.Drained || n.DrainBy != nil {
		t.Errorf("undrained as %+v", n)
	}
	w.want(422, "", "POST", path+"/drain", rootToken, map[string]any{"deadline": -1})
	w.want(422, "", "POST", path+"/drain", rootToken, map[string]any{"deadline": 2592001})
}

func TestTransfer(t *testing.T) {
	w := newWorld(t)
	const path = "/admin/raft/transfer"
	var got wire.Transfer
	for _, body := range []any{nil, "{}", `{"to": null}`} {
		w.mustDo("POST", path, rootToken, body, &got)
		if got.Leader != (compute.NodeID{UUID: uuid(8)}) {
			t.Errorf("%v: %+v leads", body, got)
		}
	}
	w.want(409, "not_a_voter", "POST", path, rootToken, map[string]any{"to": uuid(9).String()})
	w.want(404, "", "POST", path, rootToken, map[string]any{"to": "gpu-1"})
	w.want(422, "", "POST", path, rootToken, map[string]any{"to": 1})
	w.want(403, "", "POST", path, w.bobKey, nil)
}
