package fair

import "slices"

// Queue is a queue of requests of many owners, which are served by deficit round robin.
// The zero value is empty. It is not safe for concurrent use.
type Queue[K comparable] struct {
	lines  map[K]*line[K]
	ring   []*line[K] // Owners that wait, in the order of their turns.
	length int
}

// line is the requests of one owner, which are served in their order.
type line[K comparable] struct {
	owner   K
	deficit int64 // The cost of requests that the owner may still have served.
	waiting []*Ticket[K]
}

// Ticket is one request in a queue.
type Ticket[K comparable] struct {
	line     *line[K]
	cost     int64
	admitted chan struct{} // Closed by a Gate.
}

// Owner returns whose request it is.
func (t *Ticket[K]) Owner() K { return t.line.owner }

// Len returns how many requests wait.
func (q *Queue[K]) Len() int { return q.length }

// LenOf returns how many requests of one owner wait.
func (q *Queue[K]) LenOf(owner K) int {
	if l := q.lines[owner]; l != nil {
		return len(l.waiting)
	}
	return 0
}

// Push appends a request. Costs below 1 count as 1.
func (q *Queue[K]) Push(owner K, cost int64) *Ticket[K] {
	l := q.lines[owner]
	if l == nil {
		if q.lines == nil {
			q.lines = make(map[K]*line[K])
		}
		l = &line[K]{owner: owner}
		q.lines[owner] = l
		q.ring = append(q.ring, l)
	}
	t := &Ticket[K]{line: l, cost: max(cost, 1)}
	l.waiting = append(l.waiting, t)
	q.length++
	return t
}

// Pop removes the request that is served next; nil if none waits.
//
// The quantum of a round is the least by which some owner can be served. A fixed one
// would let an owner of small requests have many in a row.
func (q *Queue[K]) Pop() *Ticket[K] {
	if len(q.ring) == 0 {
		return nil
	}
	next, quantum := 0, q.ring[0].lacks()
	for i, l := range q.ring {
		if lacks := l.lacks(); lacks < quantum {
			next, quantum = i, lacks
		}
	}
	for _, l := range q.ring {
		l.deficit += quantum
	}
	l := q.ring[next]
	t := l.waiting[0]
	l.deficit -= t.cost
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	q.length--
	q.ring = slices.Delete(q.ring, next, next+1)
	if len(l.waiting) == 0 {
		delete(q.lines, l.owner) // Nobody saves up without asking.
	} else {
		q.ring = append(q.ring, l)
	}
	return t
}

// lacks returns how much more the owner needs for its next request, at least 0.
func (l *line[K]) lacks() int64 { return max(l.waiting[0].cost-l.deficit, 0) }

// Remove takes a request out, and reports whether it was in the queue.
func (q *Queue[K]) Remove(t *Ticket[K]) bool {
	l := t.line
	at := slices.Index(l.waiting, t)
	if at < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
	q.length--
	if len(l.waiting) == 0 {
		delete(q.lines, l.owner)
		q.ring = slices.DeleteFunc(q.ring, func(other *line[K]) bool { return other == l })
	}
	return true
}
