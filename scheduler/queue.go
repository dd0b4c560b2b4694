package scheduler

import (
	"bytes"
	"container/heap"
	"iter"
	"math"
	"math/bits"

	"berth/compute"
)

// How fair share weighs.
const (
	// horizon is for how long what an organization holds now counts beside
	// what it has used, in milliseconds. It makes a place that was given a
	// moment ago count at once.
	horizon = 3_600_000

	maxStanding = 1 << 62 // Sums stop here, so that none overflows.

	firstRead, mostRead = 4, 128 // Executions read of a line at a time.
)

// Order yields the executions that wait in the order in which they get a place
// if every one gets its place in turn: by priority, the highest first; then
// whose organization has the least (what it used, decayed, and what it would
// use in an hour, what it was given on the way included) for its weight; then
// by age. Pack walks the queue in the same order, counting as given only what
// it did give.
func Order(v View) iter.Seq[*compute.Execution] {
	return func(yield func(*compute.Execution) bool) {
		t := newTurns(v)
		for e := t.next(); e != nil; e = t.next() {
			t.given(e)
			if !yield(e) {
				return
			}
		}
	}
}

// turns is a walk through the queue. An organization has one line at each
// priority; a heap has the lines of one priority, the one whose turn it is on
// top.
type turns struct {
	view     View
	priority int // Of the lines; the next ones are below.
	lines    lines
	standing map[compute.OrgID]*standing
	out      *line // Whose head was returned last, still on top; nil for none.
}

// standing is where an organization stands in fair share.
type standing struct {
	value  uint64 // Price × milliseconds.
	weight uint64
}

// before compares value by weight, exactly.
func (s *standing) compare(o *standing) int {
	hi, lo := bits.Mul64(s.value, o.weight)
	hi2, lo2 := bits.Mul64(o.value, s.weight)
	switch {
	case hi != hi2:
		return sign(hi > hi2)
	case lo != lo2:
		return sign(lo > lo2)
	}
	return 0
}

func sign(above bool) int {
	if above {
		return 1
	}
	return -1
}

// raise counts what a rate uses within the horizon.
func (s *standing) raise(rate compute.Price) {
	hi, lo := bits.Mul64(uint64(max(rate, 0)), horizon)
	if hi > 0 || lo > maxStanding {
		lo = maxStanding
	}
	s.value = min(s.value+lo, maxStanding)
}

// line is the executions of one organization that wait at one priority, read
// a few at a time.
type line struct {
	org      compute.OrgID
	standing *standing
	read     []*compute.Execution
	at       int
	more     bool // There may be more behind what was read.
}

func (l *line) head() *compute.Execution { return l.read[l.at] }

// lines is a heap: the organization with the least for its weight first, the
// older head when equal.
type lines []*line

func (l lines) Len() int      { return len(l) }
func (l lines) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l lines) Less(i, j int) bool {
	if c := l[i].standing.compare(l[j].standing); c != 0 {
		return c < 0
	}
	a, b := l[i].head(), l[j].head()
	if a.SubmitIndex != b.SubmitIndex {
		return a.SubmitIndex < b.SubmitIndex
	}
	return bytes.Compare(a.ID.UUID[:], b.ID.UUID[:]) < 0
}

// Push adds a line, as heap asks.
func (l *lines) Push(x any) { *l = append(*l, x.(*line)) }

// Pop removes the last line, as heap asks.
func (l *lines) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

// newTurns returns a walk from the head of the queue of v.
func newTurns(v View) *turns {
	return &turns{view: v, priority: math.MaxInt, standing: map[compute.OrgID]*standing{}}
}

// next returns the execution whose turn it is, nil behind the last one.
func (t *turns) next() *compute.Execution {
	if t.out != nil {
		t.advance()
	}
	for len(t.lines) == 0 {
		if !t.descend() {
			return nil
		}
	}
	t.out = t.lines[0]
	return t.out.head()
}

// given counts e, which next has just returned, as placed.
func (t *turns) given(e *compute.Execution) { t.out.standing.raise(e.FairPrice()) }

// advance goes past the head of the line on top, whose turn may be over.
func (t *turns) advance() {
	l := t.out
	t.out = nil
	l.at++
	if l.at == len(l.read) && !t.fill(l) {
		heap.Pop(&t.lines)
		return
	}
	heap.Fix(&t.lines, 0)
}

// fill reads on in a line and reports whether there is more.
func (t *turns) fill(l *line) bool {
	if !l.more {
		return false
	}
	limit := min(max(2*len(l.read), firstRead), mostRead)
	var after *compute.Execution
	if len(l.read) > 0 {
		after = l.read[len(l.read)-1]
	}
	l.read, l.at = t.view.Line(t.priority, l.org, after, limit), 0
	l.more = len(l.read) == limit
	return len(l.read) > 0
}

// descend goes to the lines of the next lower priority and reports whether
// there are any.
func (t *turns) descend() bool {
	priority, orgs := t.view.Lines(t.priority)
	t.priority = priority
	for _, org := range orgs {
		l := &line{org: org, standing: t.of(org), more: true}
		if t.fill(l) {
			t.lines = append(t.lines, l)
		}
	}
	heap.Init(&t.lines)
	return len(orgs) > 0
}

// of returns where an organization stands, counting what this walk gave it.
func (t *turns) of(org compute.OrgID) *standing {
	s := t.standing[org]
	if s == nil {
		share := t.view.Share(org)
		s = &standing{value: min(share.Used, maxStanding), weight: uint64(max(share.Weight, 1))}
		s.raise(share.Rate)
		t.standing[org] = s
	}
	return s
}
