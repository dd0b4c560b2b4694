package queue

import (
	"container/heap"

	"berth/compute"
)

// Outcome is the decision about the execution that a walk returned last, as far as it
// matters for those behind it.
type Outcome int

// The outcomes.
const (
	// Again means that the next one of its class may have another outcome.
	Again Outcome = iota
	// Same means that every later one of its class would wait in the same way,
	// for the reason that is recorded, until something changes.
	Same
	// Changed means that everything may have another outcome from here on.
	Changed
	// Placed is Changed by a placement, which counts for fair share.
	Placed
)

// Walk is a walk through a queue in its order. It skips executions whose class
// has shown that they wait as before. There is one walk of a Queue at a time.
type Walk struct {
	queue   *Queue
	view    View
	level   int // The next one.
	lines   activeLines
	resting []*line // Lines with skipped classes.
	usage   usages
	out     *line // Line whose head was returned last, still on top; nil for none.
	resumed int   // How often a class was resumed.
}

// maxResumed is how often a walk resumes classes for each execution of the queue.
// Beyond it skipping costs more than it saves, with many classes and placements,
// and the walk skips nothing more.
const maxResumed = 4

// Walk returns a walk from the head of the queue. The view is that of the last
// Sync.
func (q *Queue) Walk(v View) *Walk { return &Walk{queue: q, view: v, usage: usages{}} }

// Next returns the next execution, nil behind the last one. Its outcome is Again
// unless Decided says otherwise before the next call.
func (w *Walk) Next() *compute.Execution {
	if w.out != nil {
		w.Decided(Again)
	}
	for len(w.lines) == 0 {
		if !w.descend() {
			return nil
		}
	}
	w.out = w.lines[0]
	return w.out.active[0].head().execution
}

// Decided moves on, given the outcome for the execution that Next returned last.
func (w *Walk) Decided(o Outcome) {
	l := w.out
	w.out = nil
	c := l.active[0]
	m := c.head()
	c.next++
	if o == Same && c.next < len(c.members) && w.resumed <= maxResumed*len(w.queue.members) {
		c.resume, c.next = c.next, len(c.members)
		if len(l.skipped) == 0 {
			w.resting = append(w.resting, l)
		}
		l.skipped = append(l.skipped, c)
	}
	w.moved(c)
	if o >= Changed {
		w.resume(l, m)
	}
	if o == Placed {
		l.usage.add(m.execution.FairPrice())
		if l.pos >= 0 {
			heap.Fix(&w.lines, l.pos)
		}
	}
}

// moved restores the order of the heaps after a change of the next member of c.
func (w *Walk) moved(c *class) {
	l := c.line
	switch more := c.next < len(c.members); {
	case more && c.pos < 0:
		heap.Push(&l.active, c)
	case more:
		heap.Fix(&l.active, c.pos)
	case c.pos >= 0:
		heap.Remove(&l.active, c.pos)
	}
	switch more := len(l.active) > 0; {
	case more && l.pos < 0:
		heap.Push(&w.lines, l)
	case more:
		heap.Fix(&w.lines, l.pos)
	case l.pos >= 0:
		heap.Remove(&w.lines, l.pos)
	}
}

// resume ends the skipping of all classes. Each continues where a walk that skips nothing
// would be after it returned m of line l. In a line with less usage that is the end. In a
// line with the same usage it is behind the older executions. In all other lines it is
// where the skipping began.
func (w *Walk) resume(l *line, m *member) {
	for _, r := range w.resting {
		usage := 0
		if r != l {
			usage = r.usage.compare(l.usage)
		}
		for _, c := range r.skipped {
			switch {
			case usage < 0:
				continue
			case usage == 0:
				c.next = c.firstAfter(c.resume, m)
			default:
				c.next = c.resume
			}
			w.moved(c)
		}
		w.resumed += len(r.skipped)
		r.skipped = r.skipped[:0]
	}
	w.resting = w.resting[:0]
}

// descend moves to the next lower priority and reports whether there is one.
func (w *Walk) descend() bool {
	if w.level == len(w.queue.levels) {
		return false
	}
	for _, l := range w.queue.levels[w.level].lines {
		l.begin(w.usage.of(w.view, l.org))
		l.pos = len(w.lines)
		w.lines = append(w.lines, l)
	}
	heap.Init(&w.lines)
	w.resting = w.resting[:0]
	w.level++
	return true
}

// begin moves a line to its head.
func (l *line) begin(u *usage) {
	l.usage, l.skipped, l.active = u, l.skipped[:0], l.active[:0]
	for i, c := range l.classes {
		c.next, c.pos = 0, i
		l.active = append(l.active, c)
	}
	heap.Init(&l.active)
}
