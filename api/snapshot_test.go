package api_test

import (
	"bytes"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
)

// The backup that a node hands out is the state that was acknowledged, and only
// an operator gets it.
func TestSnapshotIsABackup(t *testing.T) {
	w := newWorld(t)
	w.complete(w.start("gpu.t4"), 3, time.Second)
	got := w.mustDo("GET", "/admin/raft/snapshot", rootToken, nil, nil)
	head, f, err := fsm.ReadBackup(bytes.NewReader(got.body))
	if err != nil {
		t.Fatal(err)
	}
	view := w.machine.View()
	if f.View().Hash() != view.Hash() || head.Index != view.Index() || head.At != compute.InstantOf(w.clock()) {
		t.Errorf("the backup is of %+v, the state is at %d", head, view.Index())
	}
	if kind := got.header.Get("Content-Type"); kind != "application/octet-stream" {
		t.Errorf("it came as %q", kind)
	}
	w.want(403, "", "GET", "/admin/raft/snapshot", w.bobKey, nil)
	w.want(401, "", "GET", "/admin/raft/snapshot", "", nil)
	w.eventually("the streams to be over", func() bool { return w.streams() == 0 })
}
