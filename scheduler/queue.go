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
	// horizon is how long an organization's present attempts count ahead,
	// beside its past usage, in milliseconds. It makes a new placement count at
	// once.
	horizon = 3_600_000

	maxUsage = 1 << 62 // Sums stop here, so that none overflows.

	firstRead, mostRead = 4, 128 // Executions read of a line at a time.
)

// Order yields the queued executions in the order in which they are placed if
// every one is placed in turn: by priority, the highest first; then by the
// fair-share usage of the organization divided by its weight, the least first;
// then by age. The usage is the decayed past usage plus one hour of the present
// attempts and of the placements on the way. Pack walks the queue in the same
// order, counting only its real placements.
func Order(v View) iter.Seq[*compute.Execution] {
	return func(yield func(*compute.Execution) bool) {
		t := newQueueWalk(v)
		for e := t.next(); e != nil; e = t.next() {
			t.given(e)
			if !yield(e) {
				return
			}
		}
	}
}

// queueWalk is a walk through the queue. An organization has one line at each
// priority. A heap has the lines of one priority, the next one on top.
type queueWalk struct {
	view     View
	priority int // Of the lines; the next ones are below.
	lines    lines
	usage    map[compute.OrgID]*usage
	out      *line // Whose head was returned last, still on top; nil for none.
}

// usage is the fair-share usage of an organization.
type usage struct {
	value  uint64 // Price × milliseconds.
	weight uint64
}

// compare compares value divided by weight, exactly.
func (s *usage) compare(o *usage) int {
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

// add counts the usage of a rate within the horizon.
func (s *usage) add(rate compute.Price) {
	hi, lo := bits.Mul64(uint64(max(rate, 0)), horizon)
	if hi > 0 || lo > maxUsage {
		lo = maxUsage
	}
	s.value = min(s.value+lo, maxUsage)
}

// line is the queued executions of one organization at one priority, read a few
// at a time.
type line struct {
	org   compute.OrgID
	usage *usage
	read  []*compute.Execution
	at    int
	more  bool // There may be more behind what was read.
}

func (l *line) head() *compute.Execution { return l.read[l.at] }

// lines is a heap: the organization with the least usage for its weight first,
// the older head when equal.
type lines []*line

func (l lines) Len() int      { return len(l) }
func (l lines) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l lines) Less(i, j int) bool {
	if c := l[i].usage.compare(l[j].usage); c != 0 {
		return c < 0
	}
	a, b := l[i].head(), l[j].head()
	if a.SubmitIndex != b.SubmitIndex {
		return a.SubmitIndex < b.SubmitIndex
	}
	return bytes.Compare(a.ID.UUID[:], b.ID.UUID[:]) < 0
}

// Push implements heap.Interface.
func (l *lines) Push(x any) { *l = append(*l, x.(*line)) }

// Pop implements heap.Interface.
func (l *lines) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

// newQueueWalk returns a walk from the head of the queue of v.
func newQueueWalk(v View) *queueWalk {
	return &queueWalk{view: v, priority: math.MaxInt, usage: map[compute.OrgID]*usage{}}
}

// next returns the next execution, nil behind the last one.
func (t *queueWalk) next() *compute.Execution {
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
func (t *queueWalk) given(e *compute.Execution) { t.out.usage.add(e.FairPrice()) }

// advance moves past the head of the line on top and restores the order of the
// heap.
func (t *queueWalk) advance() {
	l := t.out
	t.out = nil
	l.at++
	if l.at == len(l.read) && !t.fill(l) {
		heap.Pop(&t.lines)
		return
	}
	heap.Fix(&t.lines, 0)
}

// fill reads more of a line and reports whether there is more.
func (t *queueWalk) fill(l *line) bool {
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

// descend moves to the lines of the next lower priority and reports whether
// there are any.
func (t *queueWalk) descend() bool {
	priority, orgs := t.view.Lines(t.priority)
	t.priority = priority
	for _, org := range orgs {
		l := &line{org: org, usage: t.of(org), more: true}
		if t.fill(l) {
			t.lines = append(t.lines, l)
		}
	}
	heap.Init(&t.lines)
	return len(orgs) > 0
}

// of returns the usage of an organization, including the placements of this
// walk.
func (t *queueWalk) of(org compute.OrgID) *usage {
	s := t.usage[org]
	if s == nil {
		share := t.view.Share(org)
		s = &usage{value: min(share.Used, maxUsage), weight: uint64(max(share.Weight, 1))}
		s.add(share.Rate)
		t.usage[org] = s
	}
	return s
}
