package fsm

import (
	"container/heap"
	"iter"
	"maps"
	"math"

	"berth/compute"
)

// With returns v with executions that were read from archives, as if they were
// still in the state: their records, their attempts, and as sub-executions of
// their parents. Neither the hash nor lists know of them.
func (v *View) With(cases ...*Case) *View {
	out := new(View)
	*out = *v
	out.extra = maps.Clone(v.extra)
	if out.extra == nil {
		out.extra = make(map[compute.ExecutionID]*Case, len(cases))
	}
	for _, c := range cases {
		out.extra[c.Execution.ID] = c
	}
	return out
}

// known returns the execution id of the state, or one that With added.
func (v *View) known(id compute.ExecutionID) (*compute.Execution, bool) {
	if e, ok := v.executions.get(id); ok {
		return e, true
	}
	if c, ok := v.extra[id]; ok {
		return c.Execution, true
	}
	return nil, false
}

// FromArchive reports whether With added the execution id.
func (v *View) FromArchive(id compute.ExecutionID) bool {
	_, ok := v.extra[id]
	return ok
}

// Dig returns v with an organization's execution, or anybody's when org is
// zero, and what belongs to it, where an archive has it; v itself when the
// state has it or nothing has.
func (v *View) Dig(org compute.OrgID, id compute.ExecutionID, open OpenArchive) (*View, error) {
	if v.executions.has(id) {
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
type OpenArchive func(*Archive) (*ArchiveFile, error)

// WholeHistory yields an organization's executions, those in archives too,
// newest first: an execution keeps its place when it is moved. Attempts come
// with those of archives only. The first error ends it: history is never shorter
// than it is.
func (v *View) WholeHistory(
	org compute.OrgID, f HistoryFilter, open OpenArchive,
) iter.Seq2[*Case, error] {
	return func(yield func(*Case, error) bool) {
		if _, archived := v.archivedTotals.get(org); !archived {
			for e := range v.History(org, f) {
				if !yield(&Case{Execution: e}, nil) {
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

// merge goes through the history of an organization in the state and in
// archives at once. An archive is opened when its newest execution is due.
type merge struct {
	view   *View
	org    compute.OrgID
	filter HistoryFilter
	skip   int
	open   OpenArchive
	yield  func(*Case, error) bool

	opened cursors
	ended  bool
}

// cursor is a place in what an open archive has of the organization.
type cursor struct {
	file *ArchiveFile
	row  int // It goes down.
}

func (c *cursor) place() place { return c.file.rows[c.row].place }

// cursors is a heap with the newest place on top.
type cursors []*cursor

func (c cursors) Len() int           { return len(c) }
func (c cursors) Less(i, j int) bool { return byPlace(c[i].place(), c[j].place()) > 0 }
func (c cursors) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }

// Push adds a *cursor.
func (c *cursors) Push(x any) { *c = append(*c, x.(*cursor)) }

// Pop removes the last one.
func (c *cursors) Pop() any {
	old := *c
	last := old[len(old)-1]
	*c = old[:len(old)-1]
	return last
}

func (m *merge) run() {
	next, stop := iter.Pull(m.view.archivesOf(m.org))
	defer stop()
	mark, more := next()
	var room []byte
	var outline compute.Execution
	emit := func(until place) bool { // What archives have above until.
		for !m.ended {
			if more && mark.newest >= until.index && (len(m.opened) == 0 || mark.newest >= m.opened[0].place().index) {
				m.enter(mark, until)
				mark, more = next()
				continue
			}
			if len(m.opened) == 0 || byPlace(m.opened[0].place(), until) < 0 {
				return true
			}
			m.pop()
		}
		return false
	}
	for k := range m.view.history.downKeys(lastPlace(m.org), place{org: m.org}, 0) {
		if k.org != m.org || !emit(k) {
			break
		}
		if m.filter == (HistoryFilter{}) && m.skip > 0 {
			m.skip--
			continue
		}
		e, encoded, _ := m.view.executions.peek(k.id, room)
		if e == nil {
			room = encoded
			if !outlineExecution(encoded, &outline) || !m.filter.matches(&outline) {
				continue
			}
			e = mustDecode[compute.Execution](encoded)
		}
		if m.filter.matches(e) && !m.give(func() *Case { return &Case{Execution: e} }) {
			return
		}
	}
	emit(place{org: m.org})
}

// enter opens what an archive has of the organization, unless nothing of it can
// be wanted.
func (m *merge) enter(mark shelfmark, until place) {
	a, _ := m.view.archives.get(mark.number)
	o, _ := a.of(m.org)
	if !m.filter.mayMatch(o) {
		return
	}
	// All of it is skipped when nothing else lies between its executions.
	if m.filter == (HistoryFilter{}) && len(m.opened) == 0 && o.Executions <= m.skip && o.Oldest > until.index &&
		!m.view.overlaps(m.org, mark, o.Oldest) {
		m.skip -= o.Executions
		return
	}
	file, err := m.open(a)
	if err != nil {
		m.ended = true
		m.yield(nil, err)
		return
	}
	if c := file.newest(m.org); c != nil {
		heap.Push(&m.opened, c)
	}
}

// pop gives the newest execution of the open archives.
func (m *merge) pop() {
	c := m.opened[0]
	row := &c.file.rows[c.row]
	if c.row--; c.row < 0 || c.place().org != m.org {
		heap.Pop(&m.opened)
	} else {
		heap.Fix(&m.opened, 0)
	}
	if row.matches(m.filter) {
		m.give(row.decode)
	}
}

// give yields an execution behind those that are skipped.
func (m *merge) give(c func() *Case) bool {
	if m.skip > 0 {
		m.skip--
		return true
	}
	m.ended = !m.yield(c(), nil)
	return !m.ended
}

// newest returns the newest place of an organization, nil for none.
func (f *ArchiveFile) newest(org compute.OrgID) *cursor {
	for i := len(f.rows) - 1; i >= 0; i-- {
		if f.rows[i].place.org == org {
			return &cursor{f, i}
		}
	}
	return nil
}

// archivesOf yields where archives have executions of an organization, by the
// newest of each, the newest first.
func (v *View) archivesOf(org compute.OrgID) iter.Seq[shelfmark] {
	return func(yield func(shelfmark) bool) {
		for k := range v.shelfmarks.downFrom(shelfmark{org, math.MaxUint64, math.MaxUint64}) {
			if k.org != org || !yield(k) {
				return
			}
		}
	}
}

// overlaps reports whether another archive behind mark has something of the
// organization that is not older than oldest.
func (v *View) overlaps(org compute.OrgID, mark shelfmark, oldest uint64) bool {
	for k := range v.shelfmarks.downFrom(mark) {
		if k != mark {
			return k.org == org && k.newest >= oldest
		}
	}
	return false
}

// mayMatch reports whether f may select something of o.
func (f HistoryFilter) mayMatch(o *ArchivedOrg) bool {
	return (f.Status == nil || o.totals().byStatus[*f.Status] > 0) &&
		(f.From.IsZero() || o.To >= f.From) &&
		(f.To.IsZero() || o.From < f.To)
}
