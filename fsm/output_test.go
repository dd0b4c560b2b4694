package fsm_test

import (
	"slices"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// printed returns a world in which three executions of ada have ended and one runs.
func printed(t *testing.T) (w *world, ended []compute.ExecutionID, live compute.ExecutionID) {
	w = bucketWorld(t)
	for range 3 {
		id := w.submit("cpu")
		w.place("n1", id)
		w.must(w.started(id))
		w.must(w.ended(id, compute.StatusCompleted, time.Second))
		ended = append(ended, id)
	}
	live = w.submit("cpu")
	w.place("n1", live)
	return w, ended, live
}

// output returns what the first attempt of an execution printed.
func output(id compute.ExecutionID, size int64) compute.OutputArchive {
	return compute.OutputArchive{Execution: id, Epoch: 1, Blob: compute.Hash{byte(size), 9}, Whole: true, Size: size}
}

func (w *world) archived(id compute.ExecutionID) int64 {
	o, ok := w.view().ArchivedOutput(id, 1)
	if !ok {
		return 0
	}
	return o.Size
}

// TestArchiveOutputs checks which outputs are recorded, that their blobs are live, and
// that a whole output replaces one without its end, never the other way round.
func TestArchiveOutputs(t *testing.T) {
	w, ended, live := printed(t)
	partial := output(ended[0], 10)
	partial.Partial = true
	second := output(ended[0], 5)
	second.Epoch = 2
	empty := output(ended[1], 5)
	empty.Blob = compute.Hash{}
	for _, test := range []struct {
		name string
		rows []compute.OutputArchive
		want int
	}{
		{"a part", []compute.OutputArchive{partial}, 1},
		{"the same part", []compute.OutputArchive{partial}, 0},
		{"the whole", []compute.OutputArchive{output(ended[0], 20)}, 1},
		{"a part of what is whole", []compute.OutputArchive{partial}, 0},
		{"an attempt that has not ended", []compute.OutputArchive{output(live, 5)}, 0},
		{"an attempt that never was", []compute.OutputArchive{second}, 0},
		{"an execution that never was", []compute.OutputArchive{output(w.executionID(), 5)}, 0},
		{"nothing, and another", []compute.OutputArchive{empty, output(ended[1], 7)}, 1},
	} {
		if r := w.must(command.ArchiveOutputs{Outputs: test.rows}); r.Count != test.want {
			t.Errorf("%s: %d are recorded, want %d", test.name, r.Count, test.want)
		}
	}
	if count, bytes := w.view().ArchivedOutputs(); count != 2 || bytes != 27 {
		t.Errorf("%d outputs of %d bytes are archived, want 2 of 27", count, bytes)
	}
	o, _ := w.view().ArchivedOutput(ended[0], 1)
	if o == nil || o.Org != w.org || o.At != w.now || o.Partial || o.Size != 20 {
		t.Errorf("the record is %+v", o)
	}
	var kept []compute.Hash
	for blob := range w.view().ObjectBlobs() {
		kept = append(kept, blob)
	}
	if !slices.Contains(kept, o.Blob) || slices.Contains(kept, partial.Blob) {
		t.Errorf("the live blobs are %v", kept)
	}
	w.refused(command.ArchiveOutputs{}, compute.CodeInvalid, "outputs")
	w.refused(command.ArchiveOutputs{Outputs: make([]compute.OutputArchive, fsm.MaxOutputRows+1)}, compute.CodeInvalid, "outputs")
}

// TestArchivedOutputGoes checks that archived output goes with its execution, and by age
// beyond the limit.
func TestArchivedOutputGoes(t *testing.T) {
	w, ended, _ := printed(t)
	for i, id := range ended {
		w.now = w.now.Add(time.Minute)
		w.must(command.Tick{Term: w.term})
		w.must(command.ArchiveOutputs{Outputs: []compute.OutputArchive{output(id, int64(10+i))}})
	}
	if r := w.must(command.TrimOutputs{Term: w.term, Bytes: 33}); r.Count != 0 {
		t.Errorf("%d were dropped within the limit", r.Count)
	}
	if r := w.must(command.TrimOutputs{Term: w.term, Bytes: 32}); r.Count != 1 || w.archived(ended[0]) != 0 {
		t.Errorf("%d were dropped, and the oldest one has %d bytes", r.Count, w.archived(ended[0]))
	}
	w.must(command.DeleteExecution{Op: w.op(w.org, "delete"), Actor: w.ada, Execution: ended[1]})
	if count, bytes := w.view().ArchivedOutputs(); count != 1 || bytes != 12 {
		t.Errorf("%d outputs of %d bytes are left", count, bytes)
	}
	if r := w.must(command.ArchiveOutputs{Outputs: []compute.OutputArchive{output(ended[1], 1)}}); r.Count != 0 {
		t.Error("output of a deleted execution was archived")
	}
	w.retain(0, 1)
	w.end(w.submit("t4"))
	w.archiveAll(library{})
	if count, bytes := w.view().ArchivedOutputs(); count != 0 || bytes != 0 {
		t.Errorf("%d outputs of %d bytes outlive their execution", count, bytes)
	}
}

// TestOutputsPrefix checks that the runs of a GPU selection copy their outputs where the
// selection says.
func TestOutputsPrefix(t *testing.T) {
	w := newestWorld(t)
	parent := w.submit("cpu", func(e *compute.Execution) {
		e.Kind, e.Selection, e.OutputsPrefix = compute.KindSelection, &compute.Selection{}, "runs/7"
	})
	w.must(w.take(parent, "gpu.t4", "gpu.h100"))
	for _, child := range w.children(parent) {
		if child.OutputsPrefix != "runs/7" {
			t.Errorf("outputs of %s go to %q", child.Profile, child.OutputsPrefix)
		}
	}
}
