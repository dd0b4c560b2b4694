package forecast

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"berth/compute"
	"berth/compute/capacity"
	"berth/scheduler"
)

// Limits of the search for moves.
const (
	maxMoves = 8       // Attempts that one quote moves.
	maxSteps = 300_000 // Nodes, devices and sets of attempts that are tried.

	stepsPerCheck = 1 << 10 // Steps between two checks of the context.
)

// Defragment returns the cheapest moves after which e, which waits in v, could
// start at once. It returns nil when there are none, or when e does not wait
// for capacity. A moved attempt starts again on another node, or on other GPUs
// of its own, and loses the time since its start, at its price. Attempts that
// must make room for it move too. The search is branch and bound over
// assignments of attempts to nodes. Within its limits nothing cheaper exists,
// and of equal prices none has fewer moves. When ctx ends it returns the best
// quote so far. The quote is an answer, not a plan: Berth never moves running
// attempts by itself.
func Defragment(ctx context.Context, v View, e *compute.Execution) *compute.Quote {
	refused := func(placed *compute.Execution) compute.Reason {
		for _, q := range v.Quotas(e.Org) {
			if why := q.Refuses(v.Load(q), placed); q.AppliesTo(placed) && why != compute.ReasonNone {
				return why
			}
		}
		return compute.ReasonNone
	}
	request, why := e.Narrowed(refused)
	if why != compute.ReasonNone || refused(e) != compute.ReasonNone {
		return nil
	}
	open := *e
	open.Request = request
	e = &open
	s := newMoves(ctx, v)
	s.search([]int{s.add(e)})
	if s.best != nil {
		s.best.Exact = !s.cut
	}
	return s.best
}

// moves is the search for the cheapest moves.
type moves struct {
	stopped func() bool // The context has ended.
	types   *capacity.Kinds
	nodes   []compute.NodeID
	free    []capacity.Node
	items   []movable                // The last one is the execution that waits.
	on      [][]int                  // By node: the items that have not been moved.
	hosts   map[capacity.Shape][]int // The nodes that could host a shape if they were empty.
	price   compute.Credits
	moved   []int // In the order in which they left.
	steps   int
	cut     bool // A limit was reached, or the context ended.
	bestOf  cost
	best    *compute.Quote
	current []int // By item: its new node; -1 while it stays.
}

// movable is an execution that holds capacity or waits for it.
type movable struct {
	execution compute.ExecutionID
	org       compute.OrgID
	shape     capacity.Shape
	node      int
	devices   []int
	lost      time.Duration
	price     compute.Credits
}

// cost orders solutions: the price, then the number of moves.
type cost struct {
	price compute.Credits
	moves int
}

func (c cost) less(d cost) bool {
	return cmp.Or(cmp.Compare(c.price, d.price), cmp.Compare(c.moves, d.moves)) < 0
}

// newMoves reads the nodes that take work and their attempts.
func newMoves(ctx context.Context, v View) *moves {
	s := &moves{
		stopped: func() bool { return ctx.Err() != nil },
		types:   capacity.NewKinds(), hosts: map[capacity.Shape][]int{}, bestOf: cost{price: math.MaxInt64},
	}
	for n := range v.Nodes() {
		if !n.Schedulable() {
			continue
		}
		var free capacity.Node
		free.Load(n, s.types)
		var here []int
		for _, w := range v.Work(n.ID) {
			here = append(here, len(s.items))
			s.items = append(s.items, movableOf(v, s.types, w, len(s.free), capacity.DevicesOf(n, w.Attempt.GPUs)))
		}
		slices.SortStableFunc(here, func(a, b int) int { return cmp.Compare(s.items[a].price, s.items[b].price) })
		s.nodes, s.free, s.on = append(s.nodes, n.ID), append(s.free, free), append(s.on, here)
	}
	return s
}

// movableOf returns a live attempt with the cost of moving it.
func movableOf(v scheduler.View, t *capacity.Kinds, w compute.Work, node int, devices []int) movable {
	m := movable{
		execution: w.Execution.ID, org: w.Execution.Org, shape: t.Shape(&w.Execution.Request),
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
	s.items = append(s.items, movable{execution: e.ID, org: e.Org, shape: s.types.Shape(&e.Request), node: -1})
	s.current = make([]int, len(s.items))
	for i := range s.current {
		s.current[i] = -1
	}
	return len(s.items) - 1
}

// step counts steps of the search and reports whether it may go on.
func (s *moves) step(steps int) bool {
	before := s.steps / stepsPerCheck
	s.steps += steps
	s.cut = s.cut || s.steps > maxSteps || s.steps/stepsPerCheck != before && s.stopped()
	return !s.cut
}

// search finds nodes for the items without one, the largest first.
func (s *moves) search(homeless []int) {
	switch now := (cost{s.price, len(s.moved)}); {
	case !now.less(s.bestOf):
		return
	case len(homeless) == 0:
		s.bestOf, s.best = now, s.quote()
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
		if s.cut || !(cost{s.price, len(s.moved)}).less(s.bestOf) {
			return
		}
		s.onNode(item, n, rest)
	}
}

// weight orders items by how hard they are to place.
func (s *moves) weight(item int) int64 {
	q := &s.items[item].shape
	return gapUnit*int64(q.GPUs*q.Milli) + q.VCPU
}

// order returns the nodes that could host an item, those first where the least
// is missing. It returns none when the search is over.
func (s *moves) order(item int) []int {
	q := &s.items[item].shape
	hosts, known := s.hosts[*q]
	if !known {
		if !s.step(len(s.free)) {
			return nil
		}
		for n := range s.free {
			if missing(&s.free[n], q) != math.MaxInt64 {
				hosts = append(hosts, n)
			}
		}
		s.hosts[*q] = hosts
	}
	if !s.step(len(hosts)) {
		return nil
	}
	type candidate struct {
		node int
		gap  int64
	}
	all := make([]candidate, len(hosts))
	for i, n := range hosts {
		all[i] = candidate{n, missing(&s.free[n], q)}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.gap, b.gap) })
	out := make([]int, len(all))
	for i := range all {
		out[i] = all[i].node
	}
	return out
}

// onNode tries an item on every relevant set of devices of a node: devices of
// one kind, and only the first of several idle ones.
func (s *moves) onNode(item, n int, homeless []int) {
	q, r := &s.items[item].shape, &s.free[n]
	if q.GPUs == 0 {
		s.onDevices(item, n, nil, homeless)
		return
	}
	var choose func(from int, chosen []int)
	choose = func(from int, chosen []int) {
		if !s.step(1) {
			return
		}
		if len(chosen) == q.GPUs {
			s.onDevices(item, n, slices.Clone(chosen), homeless)
			return
		}
		skipped := map[int]bool{} // Kinds of which an idle device was left out.
		for i := from; i <= len(r.Devices)-q.GPUs+len(chosen); i++ {
			d := &r.Devices[i]
			k := d.Kind
			if !d.Is(q) || !d.Usable() || len(chosen) > 0 && k != r.Devices[chosen[0]].Kind || skipped[k] && s.idle(n, i) {
				continue
			}
			choose(i+1, append(chosen, i))
			skipped[k] = skipped[k] || s.idle(n, i)
		}
	}
	choose(0, nil)
}

// idle reports whether a device is entirely free.
func (s *moves) idle(n, device int) bool {
	return s.free[n].Devices[device].Free == compute.WholeGPU
}

// onDevices makes room for an item on given devices in every way that moves no
// attempt needlessly, and continues with the moved ones.
func (s *moves) onDevices(item, n int, devices, homeless []int) {
	stayers := slices.Clone(s.on[n])
	var evict func(from int, gone []int)
	evict = func(from int, gone []int) {
		if !s.step(1) {
			return
		}
		if !(cost{s.price, len(s.moved)}).less(s.bestOf) {
			return
		}
		if s.takes(n, item, devices) {
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

// takes reports whether an item fits on the devices as they are.
func (s *moves) takes(n, item int, devices []int) bool {
	r, q := &s.free[n], &s.items[item].shape
	if r.VCPU < q.VCPU || r.Memory < q.Memory {
		return false
	}
	return !slices.ContainsFunc(devices, func(d int) bool { return r.Devices[d].Free < q.Milli })
}

// allNeeded reports whether each of the moved items had to leave.
func (s *moves) allNeeded(n, item int, devices, gone []int) bool {
	return !slices.ContainsFunc(gone, func(x int) bool {
		m := &s.items[x]
		s.free[n].Take(&m.shape, m.devices)
		needless := s.takes(n, item, devices)
		s.free[n].Put(&m.shape, m.devices)
		return needless
	})
}

// leave takes an item off its node.
func (s *moves) leave(item int) {
	m := &s.items[item]
	s.free[m.node].Put(&m.shape, m.devices)
	s.on[m.node] = slices.DeleteFunc(slices.Clone(s.on[m.node]), func(i int) bool { return i == item })
	s.moved = append(s.moved, item)
	s.price += m.price
}

// comeBack undoes leave.
func (s *moves) comeBack(item int) {
	m := &s.items[item]
	s.free[m.node].Take(&m.shape, m.devices)
	s.on[m.node] = append(s.on[m.node], item)
	s.moved = s.moved[:len(s.moved)-1]
	s.price -= m.price
}

// settle puts an item on devices that have room and continues with the others.
func (s *moves) settle(item, n int, devices, homeless []int) {
	q := &s.items[item].shape
	s.free[n].Take(q, devices)
	s.current[item] = n
	s.search(homeless)
	s.current[item] = -1
	s.free[n].Put(q, devices)
}

// quote returns the current solution.
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
