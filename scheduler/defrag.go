package scheduler

import (
	"cmp"
	"math"
	"slices"
	"time"

	"berth/compute"
)

// Limits of the search for moves.
const (
	maxMoves = 8       // Attempts that one quote moves at most.
	maxLooks = 300_000 // Questions whether something fits: about 100 ms.
)

// Defragment returns the cheapest moves after which one execution of the queue
// could start now, nil when there are none. What moves starts again on another
// node, or on other GPUs of its own, and loses the time since it started, at
// its price; what has to make room for it moves too. The search is branch and
// bound over who goes where; within its limits nothing cheaper exists, and of
// equal prices none has fewer moves. The quote is an answer, not a plan:
// nothing in Berth moves what runs by itself.
func Defragment(v LiveView, id compute.ExecutionID) *compute.Quote {
	var target *compute.Execution
	for e := range Order(v) {
		if e.ID == id {
			target = e
			break
		}
	}
	if target == nil {
		return nil
	}
	if own := v.Quotas(target.Org)[0]; own.Refuses(v.Load(own), target) != compute.ReasonNone {
		return nil // Room is not what it waits for.
	}
	s := newMoves(v)
	s.search([]int{s.add(target)})
	if s.best != nil {
		s.best.Exact = !s.cut
	}
	return s.best
}

// moves is the search for the cheapest moves.
type moves struct {
	types   *types
	nodes   []compute.NodeID
	rooms   []room
	items   []movable // The last one is the execution that waits.
	on      [][]int   // By node: the items that are there and were not moved.
	price   compute.Credits
	moved   []int // In the order in which they had to go.
	looks   int
	cut     bool // A limit was met.
	bestOf  cost
	best    *compute.Quote
	current []int // By item: the node where it goes; -1 while it stays.
}

// movable is something that holds room, or wants it.
type movable struct {
	execution compute.ExecutionID
	org       compute.OrgID
	shape     shape
	node      int
	devices   []int
	lost      time.Duration
	price     compute.Credits
}

// cost orders solutions: the price, then how many have to move.
type cost struct {
	price compute.Credits
	moves int
}

func (c cost) less(d cost) bool {
	return cmp.Or(cmp.Compare(c.price, d.price), cmp.Compare(c.moves, d.moves)) < 0
}

// newMoves reads the nodes that take work and what is there.
func newMoves(v LiveView) *moves {
	f := &future{types: newTypes()}
	s := &moves{types: f.types, bestOf: cost{price: math.MaxInt64}}
	for n := range v.Nodes() {
		if !n.Schedulable() {
			continue
		}
		r, devices := f.room(n)
		var here []int
		for _, w := range v.Work(n.ID) {
			here = append(here, len(s.items))
			s.items = append(s.items, movableOf(v, f.types, w, len(s.rooms), devicesOf(devices, w.Attempt.GPUs)))
		}
		slices.SortStableFunc(here, func(a, b int) int { return cmp.Compare(s.items[a].price, s.items[b].price) })
		s.nodes, s.rooms, s.on = append(s.nodes, n.ID), append(s.rooms, r), append(s.on, here)
	}
	return s
}

// movableOf returns a live attempt with what its move costs.
func movableOf(v View, t *types, w compute.Work, node int, devices []int) movable {
	m := movable{
		execution: w.Execution.ID, org: w.Execution.Org, shape: t.shape(&w.Execution.Request),
		node: node, devices: devices,
	}
	if started := w.Execution.StartedAt; !started.IsZero() {
		m.lost = max(v.Now().Sub(started), 0)
		m.price = w.Execution.Price.Charge(m.lost)
	}
	return m
}

// add adds the execution that waits and returns its number.
func (s *moves) add(e *compute.Execution) int {
	s.items = append(s.items, movable{execution: e.ID, org: e.Org, shape: s.types.shape(&e.Request), node: -1})
	s.current = make([]int, len(s.items))
	for i := range s.current {
		s.current[i] = -1
	}
	return len(s.items) - 1
}

// search finds places for what is homeless, the largest first.
func (s *moves) search(homeless []int) {
	switch now := (cost{s.price, len(s.moved)}); {
	case !now.less(s.bestOf):
		return
	case len(homeless) == 0:
		s.bestOf, s.best = now, s.quote()
		return
	case s.looks > maxLooks:
		s.cut = true
		return
	}
	at := 0
	for i := range homeless {
		if s.weight(homeless[i]) > s.weight(homeless[at]) {
			at = i
		}
	}
	item := homeless[at]
	rest := slices.Delete(slices.Clone(homeless), at, at+1)
	for _, n := range s.order(item) {
		s.onNode(item, n, rest)
	}
}

// weight orders items by how hard they are to place.
func (s *moves) weight(item int) int64 {
	q := &s.items[item].shape
	return gapUnit*int64(q.gpus*q.milli) + q.vcpu
}

// order returns the nodes that could host an item, those first where least is
// missing.
func (s *moves) order(item int) []int {
	var out []int
	gaps := make([]int64, len(s.rooms))
	for n := range s.rooms {
		if gaps[n] = s.rooms[n].missing(&s.items[item].shape); gaps[n] != math.MaxInt64 {
			out = append(out, n)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(gaps[a], gaps[b]) })
	return out
}

// onNode puts an item on every set of devices of a node that matters: of one
// kind, and of devices that are idle the first.
func (s *moves) onNode(item, n int, homeless []int) {
	q, r := &s.items[item].shape, &s.rooms[n]
	if q.gpus == 0 {
		s.onDevices(item, n, nil, homeless)
		return
	}
	var choose func(from int, chosen []int)
	choose = func(from int, chosen []int) {
		if len(chosen) == q.gpus {
			s.onDevices(item, n, slices.Clone(chosen), homeless)
			return
		}
		skipped := map[int]bool{} // Kinds of which an idle device was left out.
		for i := from; i < len(r.kinds); i++ {
			k := r.kinds[i]
			if !r.is(i, q) || len(chosen) > 0 && k != r.kinds[chosen[0]] || skipped[k] && s.idle(n, i) {
				continue
			}
			choose(i+1, append(chosen, i))
			skipped[k] = skipped[k] || s.idle(n, i)
		}
	}
	choose(0, nil)
}

// idle reports whether nothing has any of a device.
func (s *moves) idle(n, device int) bool {
	return s.rooms[n].free[device] == compute.WholeGPU
}

// onDevices makes room for an item on given devices in every way that moves
// nobody needlessly, and goes on with those that had to go.
func (s *moves) onDevices(item, n int, devices, homeless []int) {
	stayers := slices.Clone(s.on[n])
	var evict func(from int, gone []int)
	evict = func(from int, gone []int) {
		if s.looks++; s.looks > maxLooks {
			s.cut = true
			return
		}
		if !(cost{s.price, len(s.moved)}).less(s.bestOf) {
			return
		}
		if s.hosts(n, item, devices) {
			if s.allNeeded(n, item, devices, gone) {
				s.settle(item, n, devices, append(slices.Clone(homeless), gone...))
			}
			return
		}
		if len(s.moved) == maxMoves {
			s.cut = true
			return
		}
		for i := from; i < len(stayers); i++ {
			s.leave(stayers[i])
			evict(i+1, append(gone, stayers[i]))
			s.comeBack(stayers[i])
		}
	}
	evict(0, nil)
}

// hosts reports whether an item fits on the devices as they are.
func (s *moves) hosts(n, item int, devices []int) bool {
	r, q := &s.rooms[n], &s.items[item].shape
	if r.vcpu < q.vcpu || r.memory < q.memory {
		return false
	}
	return !slices.ContainsFunc(devices, func(d int) bool { return r.free[d] < q.milli })
}

// allNeeded reports whether each of those that left had to.
func (s *moves) allNeeded(n, item int, devices, gone []int) bool {
	return !slices.ContainsFunc(gone, func(x int) bool {
		m := &s.items[x]
		s.rooms[n].give(&m.shape, m.devices, 1)
		needless := s.hosts(n, item, devices)
		s.rooms[n].give(&m.shape, m.devices, -1)
		return needless
	})
}

// leave takes an item off its node.
func (s *moves) leave(item int) {
	m := &s.items[item]
	s.rooms[m.node].give(&m.shape, m.devices, -1)
	s.on[m.node] = slices.DeleteFunc(slices.Clone(s.on[m.node]), func(i int) bool { return i == item })
	s.moved = append(s.moved, item)
	s.price += m.price
}

// comeBack undoes leave.
func (s *moves) comeBack(item int) {
	m := &s.items[item]
	s.rooms[m.node].give(&m.shape, m.devices, 1)
	s.on[m.node] = append(s.on[m.node], item)
	s.moved = s.moved[:len(s.moved)-1]
	s.price -= m.price
}

// settle puts an item on devices that have room and goes on with the others.
func (s *moves) settle(item, n int, devices, homeless []int) {
	q := &s.items[item].shape
	s.rooms[n].give(q, devices, 1)
	s.current[item] = n
	s.search(homeless)
	s.current[item] = -1
	s.rooms[n].give(q, devices, -1)
}

// quote returns what was found.
func (s *moves) quote() *compute.Quote {
	q := &compute.Quote{Node: s.nodes[s.current[len(s.items)-1]], Price: s.price}
	for _, item := range s.moved {
		m := &s.items[item]
		q.Moves = append(q.Moves, compute.Move{
			Execution: m.execution, Org: m.org, From: s.nodes[m.node], To: s.nodes[s.current[item]],
			Lost: m.lost, Price: m.price,
		})
	}
	return q
}
