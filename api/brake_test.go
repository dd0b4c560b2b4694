package api_test

import (
	"testing"
	"time"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// newBrakeWorld returns a world that has a brake, in which two of three nodes
// have vanished at once.
func newBrakeWorld(t *testing.T) *world {
	w := newWorld(t)
	for n := range w.machine.View().Nodes() {
		known := *n
		known.Format = format.Newest
		w.must(command.RegisterNode{Node: known})
		w.must(command.SetInventory{Term: 1, Inventory: compute.Inventory{
			Node: n.ID, Version: 1, VCPUMilli: n.VCPUMilli, MemoryMiB: n.MemoryMiB, GPUs: n.GPUs,
		}})
	}
	w.must(command.SetFormat{Term: 1, Format: format.Newest})
	return w
}

// vanish has two of the three nodes fall silent at once.
func (w *world) vanish() {
	w.Helper()
	w.pass(time.Minute)
	for _, n := range []int{2, 3} {
		w.must(command.SetNodeState{Term: 1, Node: nodeID(n), State: compute.NodeDown})
	}
}

func TestBrake(t *testing.T) {
	w := newBrakeWorld(t)
	var b wire.Brake
	w.mustDo("GET", "/admin/brake", rootToken, nil, &b)
	if b.Holds || b.Since != nil || b.ReleasedAt != nil || b.Share != 0 || len(b.Vanished) != 0 {
		t.Errorf("before anything has happened: %+v", b)
	}
	w.place(w.start("t4"), 3)
	w.vanish()
	w.mustDo("GET", "/admin/brake", rootToken, nil, &b)
	if !b.Holds || b.Since == nil || len(b.Vanished) != 2 || b.Vanished[0].Name != "n2" || b.Vanished[1].LiveWork != 1 {
		t.Errorf("two of three have vanished: %+v", b)
	}
	w.mustDo("POST", "/admin/brake", rootToken, map[string]any{"share_percent": 70}, &b)
	if b.Holds || b.Share != 70 {
		t.Errorf("70 %% are allowed: %+v", b)
	}
	w.mustDo("POST", "/admin/brake", rootToken, map[string]any{"share_percent": 0}, &b)
	if !b.Holds || b.Share != 0 {
		t.Errorf("a third is allowed: %+v", b)
	}
	w.mustDo("POST", "/admin/brake", rootToken, map[string]any{"release": true}, &b)
	if b.Holds || b.ReleasedAt == nil || len(b.Vanished) != 0 {
		t.Errorf("released: %+v", b)
	}
	for _, body := range []map[string]any{
		{}, {"release": false}, {"share_percent": 101}, {"share_percent": "half"}, {"share": 50},
	} {
		w.want(422, "", "POST", "/admin/brake", rootToken, body)
	}
	w.want(403, "", "GET", "/admin/brake", w.bobKey, nil)
	w.want(403, "", "POST", "/admin/brake", w.bobKey, map[string]any{"release": true})
}

// TestExplainTheBrake holds that who asks after an execution whose node vanished
// learns why it is not given up, for as long as that is so.
func TestExplainTheBrake(t *testing.T) {
	w := newBrakeWorld(t)
	away, here, waits := w.start("t4"), w.start("h100"), w.start("a100.4x")
	w.place(away, 3)
	w.place(here, 1)
	said := func(id compute.ExecutionID) *wire.BrakeHold {
		t.Helper()
		var got wire.Explanation
		w.mustDo("GET", "/execution/"+id.String()+"/explain", w.adaKey, nil, &got)
		return got.Brake
	}
	if b := said(away); b != nil {
		t.Errorf("before: %+v", b)
	}
	w.vanish()
	if b := said(away); b == nil || b.Node != "n3" || b.Vanished != 2 || b.Up != 1 {
		t.Errorf("its node has vanished: %+v", b)
	}
	for _, id := range []compute.ExecutionID{here, waits} {
		if b := said(id); b != nil {
			t.Errorf("one that is not there: %+v", b)
		}
	}
	w.must(command.SetBrake{Actor: command.Actor{Root: true}, Release: true})
	if b := said(away); b != nil {
		t.Errorf("released: %+v", b)
	}
}
