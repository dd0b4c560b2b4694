package fsm_test

import (
	"slices"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// newUpload returns the command that records a bundle with a number of chunks of
// which the organization has some.
func (w *world) newUpload(a command.Actor, manifest byte, chunks int, have ...int) command.CreateUpload {
	u := compute.Upload{
		ID: compute.BundleID{UUID: w.uuid()}, Manifest: compute.Hash{manifest}, Bytes: int64(chunks), Files: chunks, Chunks: chunks,
	}
	u.Have = u.With(have)
	return command.CreateUpload{Actor: a, Upload: u}
}

func (w *world) trees() []compute.Hash {
	trees := slices.SortedFunc(w.view().Trees(), func(a, b compute.Hash) int { return int(a[0]) - int(b[0]) })
	return slices.Compact(trees)
}

// TestUploads follows a bundle from its first chunk to its use.
func TestUploads(t *testing.T) {
	w := newestWorld(t)
	c := w.newUpload(w.ada, 1, 10, 0, 9)
	id := compute.BundleID{UUID: w.must(c).ID}
	again := w.newUpload(w.ada, 1, 10, 3)
	if r := w.must(again); r.ID != id.UUID {
		t.Errorf("the same files are another bundle: %s", r.ID)
	}
	u, _ := w.view().Upload(w.org, id)
	if u.Missing() != 7 || !u.Has(0) || !u.Has(3) || u.Has(1) {
		t.Errorf("%d chunks are missing of %+v", u.Missing(), u)
	}
	if r := w.must(w.newUpload(w.other, 1, 10)); r.ID == id.UUID {
		t.Error("another organization goes on with a bundle that is not its own")
	}
	w.refused(command.ReceiveChunks{Actor: w.other, Bundle: id, Chunks: []int{1}}, compute.CodeNotFound, "bundle_not_found")
	w.refused(command.ReceiveChunks{Actor: w.ada, Bundle: id, Chunks: []int{10}}, compute.CodeInvalid, "bundle_chunk")
	w.refused(command.ReceiveChunks{Actor: w.ada, Bundle: id, Chunks: []int{-1}}, compute.CodeInvalid, "bundle_chunk")
	w.refused(command.CommitUpload{Actor: w.ada, Bundle: id}, compute.CodeConflict, "blobs_missing")
	s := w.python("gpu.t4")
	s.Op, s.Execution.Files = command.Op{}, &compute.Files{Bundle: id, Manifest: compute.Hash{99}}
	w.refused(s, compute.CodeConflict, "bundle_not_committed")
	w.must(command.ReceiveChunks{Actor: w.ada, Bundle: id, Chunks: []int{1, 2, 4, 5, 6, 7, 8}})
	for range 2 {
		w.must(command.CommitUpload{Actor: w.ada, Bundle: id})
	}
	w.must(command.ReceiveChunks{Actor: w.ada, Bundle: id, Chunks: []int{1}})
	foreign := w.python("gpu.t4")
	foreign.Op, foreign.Actor, foreign.Execution.Files = command.Op{}, w.other, s.Execution.Files
	w.refused(foreign, compute.CodeNotFound, "bundle_not_found")
	e := w.get(w.must(s).Execution)
	if e.Files == nil || e.Files.Manifest != (compute.Hash{1}) || e.Files.Count != 10 {
		t.Errorf("it has the files %+v", e.Files)
	}
	gone := w.newUpload(w.ada, 2, 1, 0)
	gone.Sources = []compute.BundleID{{UUID: w.uuid()}}
	w.refused(gone, compute.CodeConflict, "bundle_gone")
	bad := w.newUpload(w.ada, 3, 9)
	bad.Upload.Have = nil
	w.refused(bad, compute.CodeInvalid, "bundle")
}

// TestUploadsExpire checks how long bundles, the files of executions and outputs
// are live.
func TestUploadsExpire(t *testing.T) {
	w := newestWorld(t)
	w.must(w.newUpload(w.ada, 1, 1))
	used := compute.BundleID{UUID: w.must(w.newUpload(w.ada, 2, 0)).ID}
	w.must(command.CommitUpload{Actor: w.ada, Bundle: used})
	s := w.python("gpu.t4")
	s.Execution.Files = &compute.Files{Bundle: used}
	id := w.must(s).Execution
	if got := w.trees(); len(got) != 2 {
		t.Fatalf("live are %v", got)
	}
	w.pass(compute.KeepUnused + 10*time.Minute)
	if got := w.trees(); len(got) != 1 || got[0] != (compute.Hash{2}) {
		t.Errorf("after a day live are %v", got)
	}
	w.pass(compute.KeepUsed)
	if _, ok := w.view().Upload(w.org, used); ok {
		t.Error("a bundle outlives a week without use")
	}
	if got := w.trees(); len(got) != 1 {
		t.Errorf("the files of an execution that waits are gone: %v", got)
	}
	w.must(command.StopExecution{Actor: w.ada, Execution: id, Stop: compute.StopHard})
	if got := w.trees(); len(got) != 0 {
		t.Errorf("once it has ended live are %v", got)
	}
}

// TestUploadsAreBounded checks that an organization keeps the bundles that it used
// last.
func TestUploadsAreBounded(t *testing.T) {
	w := newestWorld(t)
	first := compute.BundleID{UUID: w.must(w.newUpload(w.ada, 1, 0)).ID}
	large := w.newUpload(w.ada, 2, 0)
	large.Upload.Bytes = 20 << 30
	w.pass(time.Second)
	second := compute.BundleID{UUID: w.must(large).ID}
	w.pass(time.Second)
	large = w.newUpload(w.ada, 3, 0)
	large.Upload.Bytes = 20 << 30
	w.must(large)
	if _, ok := w.view().Upload(w.org, first); ok {
		t.Error("the oldest bundle stays beside 40 GiB of others")
	}
	if _, ok := w.view().Upload(w.org, second); ok {
		t.Error("bundles of 40 GiB stay")
	}
	for i := range 300 {
		w.pass(time.Second)
		c := w.newUpload(w.ada, 0, 0)
		c.Upload.Manifest = compute.Hash{4, byte(i), byte(i >> 8)}
		w.must(c)
	}
	if n := len(slices.Collect(w.view().Uploads(w.org))); n != 256 {
		t.Errorf("%d bundles are kept", n)
	}
}

// TestOutputsAreRecorded checks that outputs are live while their execution is,
// after a restore too.
func TestOutputsAreRecorded(t *testing.T) {
	w := newestWorld(t)
	id := w.submit("gpu.t4")
	w.place("n3", id)
	a := w.attempt(id)
	w.must(command.FinishAttempt{Node: a.Node, Outcome: compute.Outcome{
		Execution: id, Epoch: a.Epoch, Status: compute.StatusFailed, Ran: true, ExitCode: 1, Duration: time.Second,
		Outputs: &compute.Outputs{Manifest: compute.Hash{7}, Count: 2, Bytes: 9, Warning: "one is a link"},
	}})
	e, _ := w.view().AnyExecution(id)
	if e.Outputs == nil || e.Outputs.Count != 2 || e.Outputs.Warning != "one is a link" {
		t.Errorf("the record has %+v", e.Outputs)
	}
	if got := w.trees(); len(got) != 1 || got[0] != (compute.Hash{7}) {
		t.Errorf("live are %v", got)
	}
	again, err := restore(w.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.View().Check(); err != nil {
		t.Error(err)
	}
	if got := slices.Collect(again.View().Trees()); len(got) != 1 || got[0] != (compute.Hash{7}) {
		t.Errorf("after a restore live are %v", got)
	}
	w.must(command.DeleteExecution{Actor: w.ada, Execution: id})
	if got := w.trees(); len(got) != 0 {
		t.Errorf("of a deleted execution live are %v", got)
	}
}

// TestMetricsAreLiveBlobs checks that the blob with the metrics of an attempt is live while
// its execution is, after a restore too.
func TestMetricsAreLiveBlobs(t *testing.T) {
	w := newestWorld(t)
	id := w.submit("gpu.t4")
	w.place("n3", id)
	a := w.attempt(id)
	w.must(command.FinishAttempt{Node: a.Node, Outcome: compute.Outcome{
		Execution: id, Epoch: a.Epoch, Status: compute.StatusFailed, Ran: true, Series: &compute.Hash{7},
	}})
	live := func(v *fsm.View) bool { return slices.Contains(slices.Collect(v.Bundles()), compute.Hash{7}) }
	e, _ := w.view().AnyExecution(id)
	if blob, ok := e.SeriesOf(a.Epoch); !ok || blob != (compute.Hash{7}) || !live(w.view()) {
		t.Errorf("the record has %x", e.Series)
	}
	again, err := restore(w.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.View().Check(); err != nil || !live(again.View()) {
		t.Errorf("after a restore the blob is not live: %v", err)
	}
	w.must(command.DeleteExecution{Actor: w.ada, Execution: id})
	if live(w.view()) {
		t.Error("the blob of a deleted execution is live")
	}
}
