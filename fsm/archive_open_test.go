package fsm_test

import (
	"slices"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/archive"
	"berth/fsm/command"
)

// end aborts waiting executions.
func (w *world) end(ids ...compute.ExecutionID) {
	w.Helper()
	for _, id := range ids {
		w.must(command.StopExecution{Op: w.op(w.org, "stop"), Actor: w.ada, Execution: id, Stop: compute.StopHard})
	}
}

// page returns a page of a history and the number of archives opened for it.
func (w *world) page(f fsm.HistoryFilter, limit int, l library) (ids []compute.ExecutionID, opened int, err error) {
	open := func(a *archive.Record) (*archive.File, error) {
		opened++
		return l.open(a)
	}
	for c, err := range w.view().WholeHistory(w.org, f, open) {
		if err != nil {
			return ids, opened, err
		}
		if ids = append(ids, c.Execution.ID); len(ids) == limit {
			break
		}
	}
	return ids, opened, nil
}

// TestFiltersOpenSelectedArchives checks that a page opens the archives that, by
// their records, have selected executions, and that the others may be missing.
func TestFiltersOpenSelectedArchives(t *testing.T) {
	w := newestWorld(t)
	l := library{}
	parent := w.selection()
	w.must(w.take(parent, "gpu.t4", "gpu.h100"))
	for _, c := range w.children(parent) {
		w.complete(c.ID, nodeOf(c), time.Second)
	}
	w.retain(0, 1)
	for range 9 {
		w.end(w.submit("t4"))
		w.archiveAll(l)
	}
	archives, _ := w.view().Archived()
	if archives < 8 {
		t.Fatalf("%d archives, want 8 at least", archives)
	}
	unknown, nobody := parent, compute.ExecutionID{UUID: compute.UUID{0xff}}
	unknown.UUID[15]++
	docker, selection, sub := compute.KindDocker, compute.KindSelection, compute.KindSubSelection
	failed, aborted, completed := compute.StatusFailed, compute.StatusAborted, compute.StatusCompleted
	for _, test := range []struct {
		name         string
		filter       fsm.HistoryFilter
		found, opens int
	}{
		{"the parent of some", fsm.HistoryFilter{Parent: &parent}, 2, 1},
		{"an unknown parent", fsm.HistoryFilter{Parent: &unknown}, 0, 1}, // Between two parents of one archive.
		{"a parent behind all", fsm.HistoryFilter{Parent: &nobody}, 0, 0},
		{"a kind that none is of", fsm.HistoryFilter{Kind: &docker}, 0, 0},
		{"a kind that one is of", fsm.HistoryFilter{Kind: &selection}, 1, 1},
		{"a kind that two are of", fsm.HistoryFilter{Kind: &sub}, 2, 1},
		{"a status that none has", fsm.HistoryFilter{Status: &failed}, 0, 0},
		{"a kind, and a status that others have", fsm.HistoryFilter{Kind: &sub, Status: &aborted}, 0, 0},
		{"a kind and a status", fsm.HistoryFilter{Kind: &sub, Status: &completed}, 2, 1},
	} {
		got, opened, err := w.page(test.filter, 100, l)
		if err != nil || len(got) != test.found || opened > test.opens {
			t.Errorf("%s: %d executions from %d archives, %v; want %d from %d",
				test.name, len(got), opened, err, test.found, test.opens)
		}
	}
	for a := range w.view().Archives() {
		if a.Executions == 1 {
			delete(l, a.Blob)
		}
	}
	if got, _, err := w.page(fsm.HistoryFilter{Parent: &parent}, 100, l); err != nil || len(got) != 2 {
		t.Errorf("without the blobs of others %d sub-executions are found, want 2: %v", len(got), err)
	}
}

// retainedWorld returns a world that archives all ended executions, with n
// executions.
func retainedWorld(t *testing.T, n int) (w *world, l library, ids []compute.ExecutionID) {
	t.Helper()
	w, l = newestWorld(t), library{}
	for range n {
		ids = append(ids, w.submit("t4"))
	}
	w.retain(0, 1)
	return w, l, ids
}

// TestSkippedArchivesStayClosed checks that a page far down the history opens
// only its own archives, although each overlaps with the next.
func TestSkippedArchivesStayClosed(t *testing.T) {
	const n = 60
	w, l, ids := retainedWorld(t, n)
	w.end(ids[0])
	for i := 1; i < n-1; i += 2 { // 2, 1, 4, 3, and so on.
		w.end(ids[i+1], ids[i])
		w.archiveAll(l)
	}
	w.end(ids[n-1])
	w.archiveAll(l)
	for range 3 { // Newer executions, in the state.
		ids = append(ids, w.submit("t4"))
	}
	slices.Reverse(ids)
	if archives, executions := w.view().Archived(); archives < n/2-1 || executions != n-1 {
		t.Fatalf("%d executions in %d archives", executions, archives)
	}
	aborted := compute.StatusAborted
	for skip := range len(ids) + 2 {
		for name, f := range map[string]struct {
			filter fsm.HistoryFilter
			want   []compute.ExecutionID
		}{
			"all":      {fsm.HistoryFilter{Skip: skip}, ids},
			"aborted":  {fsm.HistoryFilter{Skip: skip, Status: &aborted}, ids[3:]},
			"of a day": {fsm.HistoryFilter{Skip: skip, From: epoch.Add(-time.Hour), To: epoch.Add(24 * time.Hour)}, ids},
		} {
			want := f.want[min(skip, len(f.want)):]
			want = want[:min(2, len(want))]
			got, opened, err := w.page(f.filter, 2, l)
			if err != nil || !slices.Equal(got, want) || opened > 4 {
				t.Fatalf("%s: behind %d are %v from %d archives, %v; want %v from 4 at most",
					name, skip, got, opened, err, want)
			}
		}
	}
}

// TestLookupOpensItsArchive checks that a lookup of one execution opens the
// archive that has it, although the ranges of all archives include its
// identifier.
func TestLookupOpensItsArchive(t *testing.T) {
	const n = 40
	w, l, ids := retainedWorld(t, n)
	for i := range n / 2 { // The two in the middle, those around them, and so on.
		w.end(ids[n/2-1-i], ids[n/2+i])
		w.archiveAll(l)
	}
	if archives, executions := w.view().Archived(); archives < n/2-1 || executions != n-1 {
		t.Fatalf("%d executions in %d archives", executions, archives)
	}
	opened := 0
	open := func(a *archive.Record) (*archive.File, error) {
		opened++
		return l.open(a)
	}
	for _, org := range []compute.OrgID{w.org, {}} {
		for i, id := range ids {
			if _, known := w.view().AnyExecution(id); known {
				continue
			}
			opened = 0
			v, err := w.view().LoadArchived(org, id, open)
			if err != nil || !v.FromArchive(id) || opened != 1 {
				t.Errorf("execution %d: in an archive %t, %d were opened, %v", i, v.FromArchive(id), opened, err)
			}
			if _, err := v.LoadArchived(org, id, open); err != nil || opened != 1 {
				t.Errorf("execution %d: %d archives were opened for it once it was there, %v", i, opened, err)
			}
		}
		unknown := ids[n/2]
		unknown.UUID[15]++
		opened = 0
		if v, err := w.view().LoadArchived(org, unknown, open); err != nil || v.FromArchive(unknown) || opened != 0 {
			t.Errorf("an unknown execution: %d archives were opened, %v", opened, err)
		}
	}
}

// TestHistoryIsTooWide checks that a page reads no more from archives than the
// limit, and that smaller pages cover the whole history.
func TestHistoryIsTooWide(t *testing.T) {
	const n, size, most = 60, 4 << 20, 47 // A page reads at most 192 MiB.
	w := newestWorld(t)
	l := library{}
	w.retain(0, 1)
	for range n {
		w.end(w.submit("t4"))
		d := w.view().DraftArchive(nil)
		if d == nil {
			continue // The first execution stays.
		}
		l[d.Command.Blob] = d.Blob
		d.Command.Term, d.Command.Size = w.term, size
		w.must(d.Command)
	}
	_, opened, err := w.page(fsm.HistoryFilter{}, 1000, l)
	if compute.CodeOf(err) != compute.CodeInvalid || opened != most {
		t.Errorf("a page opens %d archives, %v; want %d and a refusal", opened, err, most)
	}
	for skip := range n - 20 {
		if got, opened, err := w.page(fsm.HistoryFilter{Skip: skip}, 20, l); err != nil || len(got) != 20 || opened > 22 {
			t.Errorf("20 behind %d are %d from %d archives, %v", skip, len(got), opened, err)
		}
	}
}

// TestOverdue checks that executions that wait for a larger archive are not
// overdue, and those that wait for longer are.
func TestOverdue(t *testing.T) {
	w := newestWorld(t)
	l := library{}
	for i := range 40 {
		w.end(w.submit("t4"))
		if got := w.view().Overdue(); got != 0 {
			t.Fatalf("%d of %d are overdue, which may stay", got, i)
		}
	}
	for _, test := range []struct {
		age  time.Duration
		most int
		want int
	}{
		{0, 40, 0}, {0, 37, 0}, {0, 30, 7}, {0, 1, 39}, {90 * time.Hour, 0, 0}, {90 * time.Hour, 30, 7},
	} {
		w.retain(test.age, test.most)
		if got := w.view().Overdue(); got != test.want {
			t.Errorf("of 40, kept for %s and up to %d, %d are overdue, want %d", test.age, test.most, got, test.want)
		}
	}
	w.retain(3*time.Hour, 0)
	for _, step := range []struct {
		pass time.Duration
		want int
	}{{time.Hour, 0}, {2*time.Hour + time.Minute, 0}, {10 * time.Minute, 40}} {
		w.pass(step.pass)
		if got := w.view().Overdue(); got != step.want {
			t.Errorf("%s later %d are overdue, want %d", step.pass, got, step.want)
		}
	}
	if n := w.archiveAll(l); n != 40 || w.view().Overdue() != 0 {
		t.Errorf("after %d were archived %d are overdue", n, w.view().Overdue())
	}
}

// TestDraftSkipsExecutions checks that executions that cannot be archived do not
// block others.
func TestDraftSkipsExecutions(t *testing.T) {
	w, ids := pastWorld(t, 4)
	w.retain(0, 2)
	stay := map[compute.ExecutionID]bool{ids[0]: true, ids[3]: true}
	d := w.view().DraftArchive(stay)
	if d == nil {
		t.Fatal("nothing is due")
	}
	want := []compute.ExecutionID{ids[1], ids[2], ids[4], ids[5], ids[6], ids[7]}
	if got := d.IDs(); !slices.Equal(got, want) {
		t.Errorf("the draft has %v, want %v", got, want)
	}
	d.Command.Term = w.term
	if r := w.must(d.Command); r.Count != 6 {
		t.Errorf("%d executions have left, want 6", r.Count)
	}
}
