package queue

import (
	"bytes"
	"cmp"
	"container/heap"
	"iter"
	"math"

	"berth/compute"
)

const firstRead, mostRead = 4, 128 // Executions read of a line at a time.

// View has the parts of the state at one index that the package reads.
// scheduler.View documents the methods.
type View interface {
	Lines(below int) (priority int, orgs []compute.OrgID)
	Line(priority int, org compute.OrgID, after *compute.Execution, limit int) []*compute.Execution
	Queued(id compute.ExecutionID) (*compute.Execution, bool)
	QueueChanged(since compute.Revision) (changed []compute.ExecutionID, now compute.Revision, complete bool)
	Share(org compute.OrgID) compute.Share
	Quotas(org compute.OrgID) []compute.Quota
}

// Order yields the queued executions in the order in which they are placed if
// every one is placed in turn. The highest priority comes first, then the least
// fair-share usage of the organization divided by its weight, then the oldest.
// The usage is the decayed past usage plus one hour of the present attempts and
// of the placements on the way.
func Order(v View) iter.Seq[*compute.Execution] {
	return func(yield func(*compute.Execution) bool) {
		o := InOrder(v)
		for e := o.Next(); e != nil; e = o.Next() {
			o.Placed()
			if !yield(e) {
				return
			}
		}
	}
}

// Ordered is a walk through the whole queue of a view, which it reads on the
// way. An organization has one line at each priority. A heap has the lines of
// one priority, the next one on top.
type Ordered struct {
	view     View
	priority int // Priority of the lines; the next ones have a lower one.
	lines    readers
	usage    usages
	out      *reader // Reader whose head was returned last, still on top; nil for none.
}

// reader reads a line a few executions at a time.
type reader struct {
	org   compute.OrgID
	usage *usage
	read  []*compute.Execution
	at    int
	more  bool // There may be more executions behind those that were read.
}

func (l *reader) head() *compute.Execution { return l.read[l.at] }

// older orders executions of a line, and heads of lines of equal usage.
func older(a, b *compute.Execution) int {
	return cmp.Or(cmp.Compare(a.SubmitIndex, b.SubmitIndex), bytes.Compare(a.ID.UUID[:], b.ID.UUID[:]))
}

// readers is a heap: the organization with the least usage for its weight first,
// the older head when equal.
type readers []*reader

func (l readers) Len() int      { return len(l) }
func (l readers) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l readers) Less(i, j int) bool {
	return cmp.Or(l[i].usage.compare(l[j].usage), older(l[i].head(), l[j].head())) < 0
}

// Push implements heap.Interface.
func (l *readers) Push(x any) { *l = append(*l, x.(*reader)) }

// Pop implements heap.Interface.
func (l *readers) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

// InOrder returns a walk from the head of the queue of v.
func InOrder(v View) *Ordered {
	return &Ordered{view: v, priority: math.MaxInt, usage: usages{}}
}

// Next returns the next execution, nil behind the last one.
func (o *Ordered) Next() *compute.Execution {
	if o.out != nil {
		o.advance()
	}
	for len(o.lines) == 0 {
		if !o.descend() {
			return nil
		}
	}
	o.out = o.lines[0]
	return o.out.head()
}

// Placed counts the execution that Next returned last as placed.
func (o *Ordered) Placed() { o.out.usage.add(o.out.head().FairPrice()) }

// advance moves past the head of the line on top and restores the order of the
// heap.
func (o *Ordered) advance() {
	l := o.out
	o.out = nil
	l.at++
	if l.at == len(l.read) && !o.fill(l) {
		heap.Pop(&o.lines)
		return
	}
	heap.Fix(&o.lines, 0)
}

// fill reads more of a line and reports whether there is more.
func (o *Ordered) fill(l *reader) bool {
	if !l.more {
		return false
	}
	limit := min(max(2*len(l.read), firstRead), mostRead)
	var after *compute.Execution
	if len(l.read) > 0 {
		after = l.read[len(l.read)-1]
	}
	l.read, l.at = o.view.Line(o.priority, l.org, after, limit), 0
	l.more = len(l.read) == limit
	return len(l.read) > 0
}

// descend moves to the lines of the next lower priority and reports whether
// there are any.
func (o *Ordered) descend() bool {
	priority, orgs := o.view.Lines(o.priority)
	o.priority = priority
	for _, org := range orgs {
		l := &reader{org: org, usage: o.usage.of(o.view, org), more: true}
		if o.fill(l) {
			o.lines = append(o.lines, l)
		}
	}
	heap.Init(&o.lines)
	return len(orgs) > 0
}
