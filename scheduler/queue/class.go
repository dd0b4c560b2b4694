package queue

import (
	"slices"

	"berth/compute"
	"berth/compute/capacity"
)

// classKey is everything that the scheduler reads of a waiting execution of a
// line, but for its place in the order and its price, which counts only once it
// is placed.
type classKey struct {
	shape  capacity.Shape
	gpus   int   // As its request says.
	held   int64 // Thousandths of GPUs that count in quotas.
	end    compute.Instant
	grace  int64  // Its StopGrace.
	quotas string // A bit for each quota of the organization: it counts in it.
	reason compute.Reason
	alone  compute.ExecutionID // Set if it avoids nodes: it shares no class.
}

// class is the executions of a line with one key, the oldest first.
type class struct {
	key     classKey
	line    *line
	members []*member

	// Changes that flush carries out.
	touched bool
	added   []*member
	lost    bool // Some of members are of this class no longer.

	// State of a walk.
	next   int // The next member; behind the last one while the rest is skipped.
	resume int // The first member that was skipped.
	pos    int // Position in the heap of the line; -1 when not there.
}

// member is one execution of the queue.
type member struct {
	index     uint64 // Its SubmitIndex.
	execution *compute.Execution
	class     *class // Nil once it has left the queue.
}

// compareMembers orders the members of a line.
func compareMembers(a, b *member) int {
	switch {
	case a.index < b.index:
		return -1
	case a.index > b.index:
		return 1
	}
	return older(a.execution, b.execution)
}

// head returns the next member.
func (c *class) head() *member { return c.members[c.next] }

// firstAfter returns the position of the first member from a position on that is
// behind m in the order of the line.
func (c *class) firstAfter(from int, m *member) int {
	if from == len(c.members) || compareMembers(c.members[from], m) > 0 {
		return from
	}
	n, found := slices.BinarySearchFunc(c.members[from:], m, compareMembers)
	if found {
		n++
	}
	return from + n
}

// flush carries out the changes of the members.
func (c *class) flush() {
	c.touched = false
	if len(c.added) > 0 {
		slices.SortFunc(c.added, compareMembers)
		c.merge()
		clear(c.added)
		c.added = c.added[:0]
	}
	if c.lost { // Perhaps some of those that were added.
		c.lost = false
		c.prune()
	}
}

// prune removes members that have left. They mostly leave from the front.
func (c *class) prune() {
	front := 0
	for front < len(c.members) && c.members[front].class != c {
		c.members[front] = nil
		front++
	}
	c.members = c.members[front:]
	c.members = slices.DeleteFunc(c.members, func(m *member) bool { return m.class != c })
}

// merge inserts the added members, which are sorted, from the end on.
func (c *class) merge() {
	at, left := len(c.members)-1, len(c.added)-1
	c.members = append(c.members, c.added...)
	for to := len(c.members) - 1; left >= 0; to-- {
		if at >= 0 && compareMembers(c.members[at], c.added[left]) > 0 {
			c.members[to] = c.members[at]
			at--
			continue
		}
		c.members[to] = c.added[left]
		left--
	}
}

// line is the executions of one organization at one priority, by class.
type line struct {
	org     compute.OrgID
	level   *level
	byKey   map[classKey]*class
	classes []*class

	// State of a walk.
	usage   *usage
	active  activeClasses
	skipped []*class
	pos     int // Position in the heap of the walk; -1 when not there.
}

// level is the lines of one priority.
type level struct {
	priority int
	lines    []*line
	byOrg    map[compute.OrgID]*line
}

// activeClasses is a heap: the class with the oldest next member first.
type activeClasses []*class

func (a activeClasses) Len() int           { return len(a) }
func (a activeClasses) Less(i, j int) bool { return compareMembers(a[i].head(), a[j].head()) < 0 }
func (a activeClasses) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].pos, a[j].pos = i, j
}

// Push implements heap.Interface.
func (a *activeClasses) Push(x any) {
	c := x.(*class)
	c.pos = len(*a)
	*a = append(*a, c)
}

// Pop implements heap.Interface.
func (a *activeClasses) Pop() any {
	last := (*a)[len(*a)-1]
	last.pos = -1
	*a = (*a)[:len(*a)-1]
	return last
}

// activeLines is a heap: the organization with the least usage for its weight
// first, the older head when equal.
type activeLines []*line

func (a activeLines) Len() int { return len(a) }
func (a activeLines) Less(i, j int) bool {
	if c := a[i].usage.compare(a[j].usage); c != 0 {
		return c < 0
	}
	return compareMembers(a[i].active[0].head(), a[j].active[0].head()) < 0
}

func (a activeLines) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].pos, a[j].pos = i, j
}

// Push implements heap.Interface.
func (a *activeLines) Push(x any) {
	l := x.(*line)
	l.pos = len(*a)
	*a = append(*a, l)
}

// Pop implements heap.Interface.
func (a *activeLines) Pop() any {
	last := (*a)[len(*a)-1]
	last.pos = -1
	*a = (*a)[:len(*a)-1]
	return last
}
