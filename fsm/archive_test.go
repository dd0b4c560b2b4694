package fsm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/archive"
	"berth/fsm/command"
	"berth/fsm/format"
)

// library stores the blobs of archives.
type library map[compute.Hash][]byte

// open returns the content of an archive.
func (l library) open(a *archive.Record) (*archive.File, error) {
	data, ok := l[a.Blob]
	if !ok {
		return nil, fmt.Errorf("no blob of archive %d", a.Number)
	}
	return archive.Read(a, data)
}

// archive proposes the archive that is due and returns how many executions have
// left the state.
func (w *world) archive(l library) int {
	w.Helper()
	d := w.view().DraftArchive(nil)
	if d == nil {
		return 0
	}
	l[d.Command.Blob] = d.Blob
	d.Command.Term = w.term
	return w.must(d.Command).Count
}

// archiveAll archives all due executions.
func (w *world) archiveAll(l library) (n int) {
	w.Helper()
	for {
		moved := w.archive(l)
		if moved == 0 {
			return n
		}
		n += moved
	}
}

// retain sets the age and the number up to which finished executions stay.
func (w *world) retain(age time.Duration, number int) {
	w.Helper()
	s := w.view().Settings()
	s.KeepFinished, s.MaxFinished = age, number
	w.must(command.SetSettings{Term: w.term, Settings: s})
}

// historyText returns a history as text: each execution with its attempts.
func historyText(t testing.TB, v *fsm.View, org compute.OrgID, f fsm.HistoryFilter, skip int, l library) []string {
	t.Helper()
	var out []string
	f.Skip = skip
	for c, err := range v.WholeHistory(org, f, l.open) {
		if err != nil {
			t.Fatal(err)
		}
		attempts := c.Attempts
		if attempts == nil {
			attempts = v.Attempts(c.Execution.ID)
		}
		text, err := json.Marshal([]any{c.Execution, attempts})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.ReplaceAll(string(text), "[]", "null")) // The state does not distinguish the two.
	}
	return out
}

// filters returns various filters of histories.
func filters() []fsm.HistoryFilter {
	completed, selection, none := compute.StatusCompleted, compute.KindSelection, compute.ExecutionID{}
	return []fsm.HistoryFilter{
		{},
		{Status: &completed},
		{Kind: &selection},
		{Parent: &none},
		{From: epoch.Add(2 * time.Hour)},
		{To: epoch.Add(2 * time.Hour)},
	}
}

// allHistories returns every history of two organizations.
func (w *world) allHistories(v *fsm.View, l library) map[string][]string {
	w.Helper()
	out := map[string][]string{}
	for _, org := range []compute.OrgID{w.ada.Org, w.other.Org} {
		for i, f := range filters() {
			out[fmt.Sprint(org, i)] = historyText(w, v, org, f, 0, l)
		}
		total, spent, byStatus := v.Totals(org)
		out[fmt.Sprint(org, "totals")] = []string{fmt.Sprint(total, spent, byStatus)}
	}
	return out
}

func wantSame(t testing.TB, what string, got, want map[string][]string) {
	t.Helper()
	for k, list := range want {
		if !slices.Equal(got[k], list) {
			at := 0
			for at < min(len(list), len(got[k])) && got[k][at] == list[at] {
				at++
			}
			t.Fatalf("%s: history %s has %d lines and had %d: they differ from line %d on:\n%s\nwant\n%s", what, k,
				len(got[k]), len(list), at, slices.Concat(got[k], []string{"none"})[at], slices.Concat(list, []string{"none"})[at])
		}
	}
}

// TestArchivesKeepTheHistory archives at random points of random histories.
// Answers about the past are the same before and after, with any number
// skipped, on a second replica, and after a restore from a snapshot.
func TestArchivesKeepTheHistory(t *testing.T) {
	moved := 0
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := newHistorian(t, seed)
			h.format = format.Newest
			for n := range h.view().Nodes() {
				renewed := *n
				renewed.Format = format.Newest
				h.must(command.RegisterNode{Node: renewed})
			}
			h.must(command.SetFormat{Term: h.term, Format: format.Newest})
			h.retain(3*time.Hour, 5+int(seed))
			rng, l := rand.New(rand.NewPCG(seed, 3)), library{}
			for range 50 {
				for range 1 + rng.IntN(12) {
					h.step()
				}
				before := h.view()
				had := h.allHistories(before, l)
				moved += h.archive(l)
				wantSame(t, "moved", h.allHistories(h.view(), l), had)
				wantSame(t, "an older view", h.allHistories(before, l), had)
			}
			h.wantPages(l, rng)
			h.wantReplicas(l)
		})
	}
	if moved < 40 {
		t.Errorf("only %d executions were archived: the histories test too little", moved)
	}
}

// wantPages fails unless pages of the history equal parts of the whole.
func (w *world) wantPages(l library, rng *rand.Rand) {
	w.Helper()
	for i, f := range filters() {
		whole := historyText(w, w.view(), w.org, f, 0, l)
		for range 4 {
			skip := rng.IntN(len(whole) + 2)
			if got, want := historyText(w, w.view(), w.org, f, skip, l), whole[min(skip, len(whole)):]; !slices.Equal(got, want) {
				w.Fatalf("filter %d: %d executions behind %d, want %d", i, len(got), skip, len(want))
			}
		}
	}
}

// wantReplicas fails unless a machine that applies the same entries, and one
// that reads a snapshot, have the same state.
func (w *world) wantReplicas(l library) {
	w.Helper()
	again := fsm.New()
	again.ApplyEntries(1, w.entries...)
	read, err := restore(w.snapshot())
	if err != nil {
		w.Fatal(err)
	}
	want := w.allHistories(w.view(), l)
	for name, f := range map[string]*fsm.FSM{"replica": again, "restored": read} {
		if f.View().Hash() != w.view().Hash() {
			w.Fatalf("%s: the state is another one", name)
		}
		wantSame(w, name, w.allHistories(f.View(), l), want)
		if err := f.View().Check(); err != nil {
			w.Errorf("%s: %v", name, err)
		}
	}
}

// pastWorld returns a world in which n executions of each of two organizations
// have ended a while ago, one per minute; the last is young.
func pastWorld(t *testing.T, n int) (w *world, ids []compute.ExecutionID) {
	w = newestWorld(t)
	for range n {
		for _, actor := range []command.Actor{w.ada, w.other} {
			c := w.python("t4")
			c.Op, c.Actor = w.op(actor.Org, "past"), actor
			c.Execution.CallbackURLs = []string{"https://example.com/end"}
			id := w.must(c).Execution
			w.complete(id, "n3", time.Second)
			ids = append(ids, id)
		}
		w.pass(time.Minute)
	}
	return w, ids
}

func TestArchiveIsFound(t *testing.T) {
	w, ids := pastWorld(t, 8)
	l := library{}
	w.retain(0, 6)
	if n := w.archiveAll(l); n != 10 {
		t.Fatalf("%d executions were archived, want 10 of 16", n)
	}
	if archives, executions := w.view().Archived(); archives != len(l) || executions != 10 {
		t.Errorf("%d archives with %d executions, want %d with 10", archives, executions, len(l))
	}
	for i, id := range ids {
		_, known := w.view().AnyExecution(id)
		if known != (i >= 10) {
			t.Errorf("execution %d of 16 is in the state: %t", i, known)
		}
		if known {
			continue
		}
		own, foreign := w.ada.Org, w.other.Org
		if i%2 == 1 {
			own, foreign = foreign, own
		}
		found := w.view()
		for _, a := range w.view().ArchivesWith(own, id) {
			file, err := l.open(a)
			if err != nil {
				t.Fatal(err)
			}
			found = found.With(file.Family(id)...)
		}
		e, ok := found.Execution(own, id)
		if !ok || e.Status != compute.StatusCompleted || len(found.Attempts(id)) != 1 || !found.FromArchive(id) {
			t.Errorf("execution %d is not found in its archive", i)
		}
		if _, ok := found.Execution(foreign, id); ok {
			t.Errorf("execution %d is found by another organization", i)
		}
		if found.Hash() != w.view().Hash() {
			t.Error("what was read from an archive changes the state")
		}
	}
	for c := range w.view().Callbacks() {
		if i := slices.Index(ids, c.Execution); i < 10 {
			t.Errorf("a callback of archived execution %d is left", i)
		}
	}
	if got := w.view().ArchivesWith(w.org, compute.ExecutionID{UUID: compute.UUID{0xff}}); len(got) != 0 {
		t.Errorf("%d archives may have an execution that none has", len(got))
	}
}

// TestArchiveWaitsForMoreExecutions checks that due executions wait for others,
// that each month has its own archive, and that the blob of the same executions
// is always the same.
func TestArchiveWaitsForMoreExecutions(t *testing.T) {
	w, _ := pastWorld(t, 1)
	l := library{}
	w.retain(time.Hour, 0)
	w.pass(time.Hour - 30*time.Second)
	if d := w.view().DraftArchive(nil); d != nil {
		t.Error("two executions that were due for seconds were archived")
	}
	w.pass(2 * time.Minute)
	first, second := w.view().DraftArchive(nil), w.view().DraftArchive(nil)
	if first == nil || !bytes.Equal(first.Blob, second.Blob) || first.Command.Month != 2026*12+2 {
		t.Fatal("the archive of March is not made, or differs when it is made again")
	}
	if w.archiveAll(l) != 2 {
		t.Error("two executions were not archived")
	}
	w.pass(3 * time.Hour) // Into April.
	w.complete(w.submit("t4"), "n3", time.Second)
	w.pass(2 * time.Hour)
	w.archiveAll(l)
	var months []string
	for a := range w.view().Archives() {
		months = append(months, fmt.Sprint(a.Number, archive.MonthText(a.Month), a.Executions))
	}
	if want := []string{"12026-032", "22026-041"}; !slices.Equal(months, want) {
		t.Errorf("archives are %q, want %q", months, want)
	}
}

// TestSelectionIsArchivedWhole checks that sub-executions stay as long as their
// parent, and are archived with it.
func TestSelectionIsArchivedWhole(t *testing.T) {
	w := newestWorld(t)
	l := library{}
	w.retain(time.Minute, 0)
	parent := w.selection()
	w.must(w.take(parent, "gpu.t4", "gpu.h100"))
	c := w.children(parent)
	w.complete(c[0].ID, nodeOf(c[0]), time.Second)
	w.pass(time.Hour)
	if n := w.archiveAll(l); n != 0 || len(w.children(parent)) != 2 {
		t.Fatalf("%d executions of a live GPU selection were archived", n)
	}
	w.complete(c[1].ID, nodeOf(c[1]), time.Second)
	w.wantStatus(parent, compute.StatusCompleted, compute.ReasonNone)
	w.pass(time.Hour)
	if n := w.archiveAll(l); n != 3 {
		t.Fatalf("%d executions were archived, want the parent and its two", n)
	}
	for a := range w.view().Archives() {
		file, err := l.open(a)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.view().With(file.Family(parent)...).Children(parent); len(got) != 2 {
			t.Errorf("the parent in the archive has %d sub-executions, want 2", len(got))
		}
		if got := file.Family(c[0].ID); len(got) != 2 || got[1].Execution.ID != parent {
			t.Errorf("the family of a sub-execution is %d, want it and its parent", len(got))
		}
	}
}

func TestArchiveRefuses(t *testing.T) {
	w, ids := pastWorld(t, 3)
	live := w.submit("t4")
	parent := w.selection()
	w.must(w.take(parent, "gpu.t4", "gpu.h100"))
	for _, c := range w.children(parent) {
		w.complete(c.ID, nodeOf(c), time.Second)
	}
	children := w.children(parent)
	w.retain(0, 2)
	good := w.view().DraftArchive(nil).Command
	good.Term = w.term
	of := func(ids ...compute.ExecutionID) func(*command.ArchiveExecutions) {
		return func(c *command.ArchiveExecutions) {
			c.Executions = nil
			for _, id := range ids {
				c.Executions = append(c.Executions, id.UUID[:]...)
			}
		}
	}
	tests := []struct {
		name   string
		change func(*command.ArchiveExecutions)
		want   string
	}{
		{"nothing", of(), "archive"},
		{"half an identifier", func(c *command.ArchiveExecutions) { c.Executions = c.Executions[:len(c.Executions)-1] }, "archive"},
		{"a blob of no size", func(c *command.ArchiveExecutions) { c.Size = 0 }, "archive"},
		{"one twice", of(ids[0], ids[0]), "archive"},
		{"an unknown one", of(ids[0], compute.ExecutionID{UUID: compute.UUID{9}}), "archive_refused"},
		{"a live one", of(ids[0], live), "archive_refused"},
		{"a child without its parent", of(ids[0], children[0].ID), "archive_refused"},
		{"a parent without a child", of(parent, children[0].ID), "archive_refused"},
		{"more than are too many", of(append(ids, parent, children[0].ID, children[1].ID)...), "archive_refused"},
		{"another month", func(c *command.ArchiveExecutions) { c.Month++ }, "archive_refused"},
		{"fewer than the sum says", func(c *command.ArchiveExecutions) { c.Executions = c.Executions[16:] }, "archive_differs"},
		{"another sum", func(c *command.ArchiveExecutions) { c.Sum[2]++ }, "archive_differs"},
		{"an older term", func(c *command.ArchiveExecutions) { c.Term = 0 }, "stale_term"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := good
			c.Executions = slices.Clone(good.Executions)
			test.change(&c)
			before := w.snapshotSums()
			r := w.do(c)
			if r.Refusal == nil || r.Refusal.Detail != test.want {
				t.Errorf("the answer is %+v, want %s", r.Refusal, test.want)
			}
			if got := w.snapshotSums(); got != before {
				t.Error("a refused archive has changed the state")
			}
		})
	}
	if r := w.must(good); r.Count != len(good.Executions)/16 || r.Repeat {
		t.Errorf("the archive moved %d executions, want %d", r.Count, len(good.Executions)/16)
	}
	if r := w.must(good); !r.Repeat || r.Count != 0 {
		t.Errorf("a repeat moved %d executions", r.Count)
	}
}

// snapshotSums returns the sums of the tables of executions, attempts,
// callbacks and archives.
func (w *world) snapshotSums() string {
	s := w.view().TableSums()
	return s["executions"] + s["attempts"] + s["callbacks"] + s["archives"]
}

func TestArchiveNeedsTheFormat(t *testing.T) {
	w := newWorld(t)
	w.retain(0, 1)
	for range 3 {
		w.complete(w.submit("t4"), "n3", time.Second)
	}
	if w.view().DraftArchive(nil) != nil {
		t.Error("an archive is drafted that an older server cannot apply")
	}
	if err := w.view().Allows(command.ArchiveExecutions{}); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("the command is allowed: %v", err)
	}
	if bytes.Contains(w.snapshot(), []byte{21, 0, 0, 0, 0, 0, 0, 0, 0, 0xff}) {
		t.Error("a snapshot has an empty table of archives, of which older formats know nothing")
	}
}

// TestArchiveBlobIsChecked checks that a blob that does not match its record is
// refused, whatever differs.
func TestArchiveBlobIsChecked(t *testing.T) {
	w, _ := pastWorld(t, 4)
	l := library{}
	w.retain(0, 1)
	w.archiveAll(l)
	for a := range w.view().Archives() {
		good := l[a.Blob]
		if _, err := archive.Read(a, good); err != nil {
			t.Fatal(err)
		}
		for i := range good {
			bad := bytes.Clone(good)
			bad[i] ^= 1
			if _, err := archive.Read(a, bad); err == nil {
				t.Fatalf("a blob with another byte %d is read", i)
			}
			if _, err := archive.Read(a, good[:i]); err == nil {
				t.Fatalf("a blob of %d bytes of %d is read", i, len(good))
			}
		}
		for _, change := range []func(*archive.Record){
			func(a *archive.Record) { a.Executions++ },
			func(a *archive.Record) { a.Sum[0]++ },
			func(a *archive.Record) { a.Month++ },
		} {
			other := *a
			change(&other)
			if _, err := archive.Read(&other, good); err == nil {
				t.Error("a blob that holds something else is read")
			}
		}
	}
	clear(l)
	var err error
	for _, err = range w.view().WholeHistory(w.org, fsm.HistoryFilter{}, l.open) {
		if err != nil {
			break
		}
	}
	if err == nil {
		t.Error("history without its blobs is shorter and says nothing")
	}
}

// TestArchiveKeepsBundles checks that code of archived executions in the blob
// stores counts as used.
func TestArchiveKeepsBundles(t *testing.T) {
	w := newestWorld(t)
	id := w.submit("t4", func(e *compute.Execution) {
		e.Bundle = compute.BundleRef{Hash: hash("large"), Size: 1 << 20}
	})
	w.complete(id, "n3", time.Second)
	w.retain(time.Minute, 0)
	w.pass(time.Hour)
	if w.archiveAll(library{}) != 1 {
		t.Fatal("nothing was archived")
	}
	if got := slices.Collect(w.view().Bundles()); !slices.Equal(got, []compute.Hash{hash("large")}) {
		t.Errorf("bundles in use are %v", got)
	}
}
