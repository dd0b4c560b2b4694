package fsm

import (
	"container/heap"
	"iter"
	"maps"
	"math"
	"sort"

	"berth/compute"
	"berth/fsm/archive"
)

// With returns v with executions that were read from archives, as if they were
// still in the state: their records, their attempts, and their roles as
// sub-executions of their parents. The hash and lists ignore them.
func (v *View) With(cases ...*archive.Case) *View {
	out := new(View)
	*out = *v
	out.extra = maps.Clone(v.extra)
	if out.extra == nil {
		out.extra = make(map[compute.ExecutionID]*archive.Case, len(cases))
	}
	for _, c := range cases {
		out.extra[c.Execution.ID] = c
	}
	return out
}

// known returns the execution id from the state, or one that With added.
func (v *View) known(id compute.ExecutionID) (*compute.Execution, bool) {
	if e, ok := v.executions.Get(id); ok {
		return e, true
	}
	if c, ok := v.extra[id]; ok {
		return c.Execution, true
	}
	return nil, false
}

// FromArchive reports whether With added the execution id.
func (v *archiveTables) FromArchive(id compute.ExecutionID) bool {
	_, ok := v.extra[id]
	return ok
}

// LoadArchived returns v with an archived execution of an organization and its
// attempts and relatives. A zero org stands for any organization. It returns v
// itself if the state has the execution or no archive has it.
func (v *View) LoadArchived(org compute.OrgID, id compute.ExecutionID, open OpenArchive) (*View, error) {
	if v.executions.Has(id) || v.FromArchive(id) {
		return v, nil
	}
	for _, a := range v.ArchivesWith(org, id) {
		file, err := open(a)
		if err != nil {
			return nil, err
		}
		family := file.Family(id)
		if len(family) > 0 && (org.IsZero() || family[0].Execution.Org == org) {
			return v.With(family...), nil
		}
	}
	return v, nil
}

// OpenArchive returns the content of an archive's blob.
type OpenArchive func(*archive.Record) (*archive.File, error)

// WholeHistory yields an organization's executions in the state and in
// archives, newest first. An execution keeps its place when it is archived.
// Only archived executions come with their attempts. The first error ends the
// sequence, so that history is never incomplete without an error.
func (v *View) WholeHistory(
	org compute.OrgID, f HistoryFilter, open OpenArchive,
) iter.Seq2[*archive.Case, error] {
	return func(yield func(*archive.Case, error) bool) {
		if _, archived := v.archivedTotals.Get(org); !archived {
			for e := range v.History(org, f) {
				if !yield(&archive.Case{Execution: e}, nil) {
					return
				}
			}
			return
		}
		m := merge{view: v, org: org, filter: f, skip: f.Skip, open: open, yield: yield}
		m.filter.Skip = 0
		m.run()
	}
}

// Limits of reading archives for one history page: some seconds of a core. A
// page with few executions in each of many archives may exceed them, and the
// client has to ask for less. 50 executions, each in an archive of its own, are
// within the limits.
const (
	maxRead    = 192 << 20 // Bytes of blobs, or half of the unpacked bytes where that is more.
	openCost   = 32 << 10  // Cost of an archive beside its bytes, in bytes.
	recordCost = 512       // Cost of each execution in it, in bytes.
)

// merge iterates over the history of an organization in the state and in
// archives together. It opens an archive when the archive's newest execution is
// due.
type merge struct {
	view   *View
	org    compute.OrgID
	filter HistoryFilter // Without Skip.
	skip   int
	open   OpenArchive
	yield  func(*archive.Case, error) bool

	read   int64 // In the unit of maxRead.
	opened cursors
	ended  bool
}

// cursor is a position in an organization's part of an open archive.
type cursor struct {
	rows []archive.Row
	row  int // Counts down.
}

func (c *cursor) place() archive.Place { return c.rows[c.row].Place }

// cursors is a heap with the newest place on top.
type cursors []*cursor

func (c cursors) Len() int           { return len(c) }
func (c cursors) Less(i, j int) bool { return archive.ByPlace(c[i].place(), c[j].place()) > 0 }
func (c cursors) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }

// Push adds a *cursor.
func (c *cursors) Push(x any) { *c = append(*c, x.(*cursor)) }

// Pop removes the last cursor.
func (c *cursors) Pop() any {
	old := *c
	last := old[len(old)-1]
	*c = old[:len(old)-1]
	return last
}

func (m *merge) run() {
	from := m.seek()
	next, stop := iter.Pull(m.view.archivesOf(m.org, from))
	defer stop()
	mark, more := next()
	emit := func(until archive.Place) bool { // Yields archived executions above until.
		for !m.ended {
			if more && mark.newest >= until.Index && (len(m.opened) == 0 || mark.newest >= m.opened[0].place().Index) {
				m.enter(mark)
				mark, more = next()
				continue
			}
			if len(m.opened) == 0 || archive.ByPlace(m.opened[0].place(), until) < 0 {
				return true
			}
			m.pop()
		}
		return false
	}
	for k, load := range m.inState(from.newest) {
		if !emit(k) || !m.give(func() *archive.Case { return &archive.Case{Execution: load()} }) {
			return
		}
	}
	emit(archive.Place{Org: m.org})
}

// seek passes over archives whose executions are certainly skipped. It opens
// only those that extend below the place where the skipped part ends. It
// returns that place: the merge begins with its index.
func (m *merge) seek() archivePlace {
	at, rows := m.skipBound()
	for mark := range m.view.archivesOf(m.org, lastArchivePlace(m.org)) {
		if mark == at || at.newest == math.MaxUint64 || m.ended {
			break
		}
		a, o := m.row(mark)
		n, exact := m.filter.most(o)
		switch {
		case n == 0:
		case exact && o.Oldest > at.newest:
			m.skip -= n
		default:
			m.load(a, at.newest)
		}
	}
	m.skip -= rows
	return at
}

// skipBound returns the last archive such that everything above its newest
// execution is skipped, whatever the inexact counts stand for. It also returns
// how many executions of the state are above it.
func (m *merge) skipBound() (at archivePlace, above int) {
	at = lastArchivePlace(m.org)
	if m.skip == 0 {
		return at, 0
	}
	next, stop := iter.Pull(m.view.archivesOf(m.org, at))
	defer stop()
	mark, more := next()
	rows, most := 0, 0 // Counted so far: in the state, and at most in archives.
	pass := func(until uint64) bool {
		for ; more && mark.newest >= until && rows+most <= m.skip; mark, more = next() {
			_, o := m.row(mark)
			n, _ := m.filter.most(o)
			at, above, most = mark, rows, most+n
		}
		return rows+most <= m.skip
	}
	for k := range m.inState(math.MaxUint64) {
		if !pass(k.Index) {
			return at, above
		}
		rows++
	}
	m.ended = pass(0) // Everything is skipped.
	return at, above
}

// inState yields the selected executions of the state from an index down, as
// View.selected does.
func (m *merge) inState(from uint64) iter.Seq2[archive.Place, func() *compute.Execution] {
	first := lastHistoryKey(m.org)
	if from < math.MaxUint64 {
		first.Index = from + 1 // No execution has this key.
	}
	return m.view.selected(first, m.filter)
}

// row returns an archive and the organization's part of it.
func (m *merge) row(mark archivePlace) (*archive.Record, *archive.Org) {
	a, _ := m.view.archives.Get(mark.number)
	o, _ := a.Part(m.org)
	return a, o
}

// enter opens an archive unless the filter selects nothing in it.
func (m *merge) enter(mark archivePlace) {
	a, o := m.row(mark)
	if n, _ := m.filter.most(o); n > 0 {
		m.load(a, math.MaxUint64)
	}
}

// load opens an archive for the organization's executions up to an index. Those
// above the index are skipped.
func (m *merge) load(a *archive.Record, upTo uint64) {
	if m.read += a.Size + openCost + recordCost*int64(a.Executions); m.read > maxRead {
		m.fail(compute.Errorf(compute.CodeInvalid, "This page is spread over too many archives of old executions: "+
			"ask for fewer executions at once (limit), or for those of a shorter time (from, to).").
			Named("history_too_wide"))
		return
	}
	file, err := m.open(a)
	if err != nil {
		m.fail(err)
		return
	}
	m.read += max(int64(file.Unpacked()/2)-a.Size, 0)
	rows := file.Rows(m.org)
	n := sort.Search(len(rows), func(i int) bool { return rows[i].Place.Index > upTo })
	for i := range rows[n:] {
		if m.filter.selects(&rows[n+i]) {
			m.skip--
		}
	}
	if n > 0 {
		heap.Push(&m.opened, &cursor{rows[:n], n - 1})
	}
}

// fail ends the history with an error.
func (m *merge) fail(err error) {
	m.ended = true
	m.yield(nil, err)
}

// pop yields the newest execution of the open archives.
func (m *merge) pop() {
	c := m.opened[0]
	row := &c.rows[c.row]
	if c.row--; c.row < 0 {
		heap.Pop(&m.opened)
	} else {
		heap.Fix(&m.opened, 0)
	}
	if m.filter.selects(row) {
		m.give(row.Decode)
	}
}

// give yields an execution, or counts it as skipped.
func (m *merge) give(c func() *archive.Case) bool {
	if m.skip > 0 {
		m.skip--
		return true
	}
	m.ended = !m.yield(c(), nil)
	return !m.ended
}

// lastArchivePlace is behind all archive places of an organization.
func lastArchivePlace(org compute.OrgID) archivePlace {
	return archivePlace{org, math.MaxUint64, math.MaxUint64}
}

// archivesOf yields the places of an organization's parts of archives from one
// down, ordered by the newest execution of each, newest first.
func (v *archiveTables) archivesOf(org compute.OrgID, from archivePlace) iter.Seq[archivePlace] {
	return func(yield func(archivePlace) bool) {
		for k := range v.archivePlaces.Descend(from) {
			if k.org != org || !yield(k) {
				return
			}
		}
	}
}

// selects reports whether f selects the execution of a row.
func (f HistoryFilter) selects(r *archive.Row) bool {
	if f == (HistoryFilter{}) {
		return true
	}
	var e compute.Execution
	return r.Partial(&e) && f.matches(&e)
}

// most returns the largest possible number of executions of o that the filter
// selects, and whether it is exact. A sub-execution is in the archive of its
// parent.
func (f HistoryFilter) most(o *archive.Org) (n int, exact bool) {
	n = o.Count(f.Status, f.Kind)
	switch {
	case !f.From.IsZero() && o.To < f.From || !f.To.IsZero() && o.From >= f.To:
		n = 0
	case f.Parent != nil && !f.Parent.IsZero() && !o.Holds(*f.Parent):
		n = 0
	}
	whole := f.Parent == nil && (f.From.IsZero() || o.From >= f.From) && (f.To.IsZero() || o.To < f.To)
	return n, whole || n == 0
}
