package forecast

import (
	"encoding/binary"
	"math"
	"slices"

	"berth/compute"
	"berth/compute/capacity"
	"berth/scheduler"
)

// never is the time of a start that does not come.
const never = math.MaxInt64

// simulation draws possible futures of a queue. Running attempts end, and the
// queue takes the freed capacity in its order, with the claims that Pack
// makes. Placement is best fit: the policy of Pack would cost far more and
// change the times little.
type simulation struct {
	kinds   *capacity.Kinds
	shapes  map[capacity.Shape]int // Numbers of the shapes in the queue.
	nodes   []capacity.Node
	queue   []queued
	running []running
	quotas  []allowance
	scopes  map[compute.OrgID][]int // By organization, positions in quotas.

	// State of one round:
	round     uint64
	now       []capacity.Node
	unclaimed []*capacity.Node // Capacity beside the claims on a node, for executions behind them; nil for all of it.
	failed    []bool           // By shape: no execution later in this walk fits either.
	used      []compute.Load   // By quota.
	claims    [][]claim        // By GPU type.
	ends      endHeap
	starts    []int64
	waiting   []int     // Positions in the queue, in order.
	placed    []running // By position in the queue.
}

// queued is one execution of the queue.
type queued struct {
	id      compute.ExecutionID
	times   *runTimes
	options []option // The preferred first; none if its organization may use no hardware that it accepts.
}

// option is a way in which an execution may start. Most have one. An execution of several GPU types has
// one for those that no quota of a hardware profile limits, and one for each of the others.
type option struct {
	running

	number int  // Number of its shape.
	over   bool // A quota was used up at the last check.
}

// running is an execution that holds capacity, or will.
type running struct {
	node    int
	seed    uint64
	quotas  []int // Those that it counts in.
	held    int64 // Thousandths of GPU, as quotas count.
	shape   capacity.Shape
	devices []int
	times   *runTimes
	limit   int64 // Time limit in milliseconds.
	elapsed int64 // Milliseconds since placement.
	leaves  int64 // Milliseconds until a preempted attempt has left at the latest; never for others.
}

// allowance is a quota and its load at the beginning.
type allowance struct {
	compute.Quota

	load compute.Load
}

// claim is the node whose capacity a blocked execution waits for.
type claim struct{ queued, node int }

// newSimulation reads v.
func newSimulation(v View) *simulation {
	s := &simulation{
		kinds: capacity.NewKinds(), shapes: map[capacity.Shape]int{}, scopes: map[compute.OrgID][]int{},
	}
	past := readHistory(v)
	for n := range v.Nodes() {
		if !n.Schedulable() {
			continue // Attempts that end there free nothing for the queue.
		}
		for _, w := range v.Work(n.ID) {
			leaves := int64(never)
			if !w.Attempt.PreemptAt.IsZero() {
				leaves = w.LatestEnd().Sub(v.Now()).Milliseconds()
			}
			s.running = append(s.running, running{
				node: len(s.nodes), seed: seedOf(w.Execution.ID), leaves: leaves,
				quotas: s.quotasOf(v, w.Execution), held: w.Execution.Request.HeldMilliGPU(),
				shape: s.kinds.Shape(&w.Execution.Request), devices: capacity.DevicesOf(n, w.Attempt.GPUs),
				times: past.of(w.Execution), limit: w.Execution.Timeout.Milliseconds(),
				elapsed: v.Now().Sub(w.Attempt.PlacedAt).Milliseconds(),
			})
		}
		var free capacity.Node
		free.Load(n, s.kinds)
		s.nodes = append(s.nodes, free)
	}
	for e := range scheduler.Order(v) {
		if len(s.queue) == MaxEstimated {
			break
		}
		s.queue = append(s.queue, s.queued(v, e, past.of(e)))
	}
	return s
}

// queued returns e, which waits.
func (s *simulation) queued(v scheduler.View, e *compute.Execution, times *runTimes) queued {
	w := queued{id: e.ID, times: times}
	for _, one := range s.waysOf(v, e) {
		o := option{running: running{
			seed: seedOf(e.ID), quotas: one.quotas, held: e.Request.HeldMilliGPU(),
			shape: s.kinds.Shape(&one.request), times: times, limit: e.Timeout.Milliseconds(), leaves: never,
		}}
		if _, known := s.shapes[o.shape]; !known {
			s.shapes[o.shape] = len(s.shapes)
		}
		o.number = s.shapes[o.shape]
		w.options = append(w.options, o)
	}
	return w
}

// way is a request for an execution, and the quotas that count the execution then.
type way struct {
	request compute.Request
	quotas  []int
}

// waysOf returns the requests that e could start with, the cheapest first.
func (s *simulation) waysOf(v scheduler.View, e *compute.Execution) []way {
	own := s.quotasOf(v, e)
	if !e.AnyOf() || e.Request.GPUType != "" {
		return []way{{e.Request, own}}
	}
	var out []way
	unlimited := -1 // The way of the types that no quota of a hardware profile counts.
	for _, name := range e.Request.AnyOf {
		placed := *e
		if !placed.Take(name) {
			continue
		}
		quotas := s.quotasOf(v, &placed)
		switch limited := len(quotas) > len(own); {
		case slices.ContainsFunc(quotas, func(i int) bool { return s.quotas[i].Denied }):
			continue
		case !limited && unlimited >= 0:
			r := &out[unlimited].request
			r.AnyOf = append(r.AnyOf, name)
			continue
		case !limited:
			unlimited = len(out)
		}
		one := way{e.Request, quotas}
		one.request.AnyOf = []string{name}
		out = append(out, one)
	}
	return out
}

// quotasOf returns the quotas that count e.
func (s *simulation) quotasOf(v scheduler.View, e *compute.Execution) (own []int) {
	all, known := s.scopes[e.Org]
	if !known {
		for _, q := range v.Quotas(e.Org) {
			all = append(all, len(s.quotas))
			s.quotas = append(s.quotas, allowance{q, v.Load(q)})
		}
		s.scopes[e.Org] = all
	}
	for _, i := range all {
		if s.quotas[i].AppliesTo(e) {
			own = append(own, i)
		}
	}
	return own
}

func seedOf(id compute.ExecutionID) uint64 { return mix(binary.BigEndian.Uint64(id.UUID[8:])) }

// run simulates one future and returns when each execution of the queue starts,
// in milliseconds from now.
func (s *simulation) run(round uint64) []int64 {
	s.begin(round)
	s.walk(0, 0, len(s.now))
	for left := maxEvents; len(s.ends) > 0 && len(s.waiting) > 0 && left > 0; left-- {
		e := s.ends.pop()
		r := &s.placed[max(-e.subject-1, 0)]
		if e.subject >= 0 {
			r = &s.running[e.subject]
		}
		s.now[r.node].Put(&r.shape, r.devices)
		s.count(r, -1)
		s.walk(e.at, r.node, r.node+1)
	}
	return s.starts
}

// begin resets the round to the present.
func (s *simulation) begin(round uint64) {
	s.round = mix(round)
	if s.now == nil {
		s.now = make([]capacity.Node, len(s.nodes))
	}
	for i := range s.nodes {
		s.now[i].CopyFrom(&s.nodes[i])
	}
	s.unclaimed = make([]*capacity.Node, len(s.nodes))
	s.failed = make([]bool, len(s.shapes))
	s.used = make([]compute.Load, len(s.quotas))
	for i := range s.quotas {
		s.used[i] = s.quotas[i].load
	}
	s.claims = make([][]claim, len(s.kinds.Sets)+1)
	s.ends = s.ends[:0]
	for i := range s.running {
		r := &s.running[i]
		s.ends.push(end{min(r.times.draw(mix(r.seed^s.round), r.limit, r.elapsed), max(r.leaves, 1)), i})
	}
	s.starts, s.waiting = make([]int64, len(s.queue)), make([]int, len(s.queue))
	s.placed = make([]running, len(s.queue))
	for i := range s.queue {
		s.starts[i], s.waiting[i] = never, i
		for o := range s.queue[i].options {
			s.queue[i].options[o].over = false
		}
	}
}

// walk offers the capacity of nodes first to last-1 to the waiting executions
// in their order. Capacity only shrinks on the way, so once one execution does
// not fit, no later one of its shape does.
func (s *simulation) walk(at int64, first, last int) {
	clear(s.failed)
	clear(s.unclaimed)
	still := s.waiting[:0]
	for _, i := range s.waiting {
		if !s.start(i, at, first, last) {
			still = append(still, i)
			s.claim(i)
		}
	}
	s.waiting = still
}

// left returns the capacity of a node beside the claims on it.
func (s *simulation) left(node int) *capacity.Node {
	if n := s.unclaimed[node]; n != nil {
		return n
	}
	return &s.now[node]
}

// start starts a queued execution on one of the nodes, if its quotas allow it
// and it fits.
func (s *simulation) start(i int, at int64, first, last int) bool {
	w := &s.queue[i]
	for o := range w.options {
		node, devices := s.place(&w.options[o], first, last)
		if node < 0 {
			continue
		}
		r := w.options[o].running
		r.node, r.devices = node, devices
		s.now[node].Take(&r.shape, r.devices)
		if free := s.unclaimed[node]; free != nil {
			free.Take(&r.shape, r.devices)
		}
		s.count(&r, 1)
		s.starts[i], s.placed[i] = at, r
		s.ends.push(end{at + r.times.draw(mix(r.seed^s.round), r.limit, 0), -i - 1})
		for o := range w.options {
			kind := w.options[o].shape.GPUType
			s.claims[kind] = slices.DeleteFunc(s.claims[kind], func(c claim) bool { return c.queued == i })
		}
		return true
	}
	return false
}

// place returns one of the nodes that has capacity for an option, and its devices; -1 if none has,
// or a quota is used up.
func (s *simulation) place(o *option, first, last int) (node int, devices []int) {
	if o.over {
		first, last = 0, len(s.now) // It was not offered the capacity of other nodes.
	} else if s.failed[o.number] {
		return -1, nil
	}
	if o.over = s.over(o); o.over {
		return -1, nil
	}
	for n := first; n < last; n++ {
		if free := s.left(n); free.Fits(&o.shape) {
			return n, bestFit(free, &o.shape)
		}
	}
	s.failed[o.number] = true
	return -1, nil
}

// over reports whether a quota of o is used up.
func (s *simulation) over(o *option) bool {
	for _, i := range o.quotas {
		q, used := &s.quotas[i], &s.used[i]
		if q.Denied || q.Concurrent > 0 && used.Attempts >= q.Concurrent ||
			q.MilliGPU > 0 && used.MilliGPU+o.held > q.MilliGPU {
			return true
		}
	}
	return false
}

// count adds r to the load of its quotas, or removes it.
func (s *simulation) count(r *running, sign int) {
	for _, i := range r.quotas {
		s.used[i].Attempts += sign
		s.used[i].MilliGPU += int64(sign) * r.held
	}
}

// maxClaims is how many executions of one type claim capacity in a simulation.
// Pack makes several reservations for executions with several GPUs too.
const maxClaims = 4

// claim withholds the capacity that a blocked execution waits for from those
// behind it. The first blocked executions of a type claim the nodes where the
// least is missing. An execution has a claim for one of its options.
func (s *simulation) claim(i int) {
	w := &s.queue[i]
	for o := range w.options {
		if one := &w.options[o]; !one.over && s.claimFor(i, &one.shape) {
			return
		}
	}
}

// claimFor has an execution claim a node for a shape, and reports whether it could.
func (s *simulation) claimFor(i int, shape *capacity.Shape) bool {
	all := s.claims[shape.GPUType]
	at := slices.IndexFunc(all, func(c claim) bool { return c.queued == i })
	if at < 0 {
		if len(all) > 0 && (shape.GPUs < 2 || len(all) == maxClaims) {
			return false
		}
		node := s.nearest(shape)
		if node < 0 {
			return false
		}
		at, all = len(all), append(all, claim{i, node})
		s.claims[shape.GPUType] = all
	}
	s.unclaimed[all[at].node] = without(s.left(all[at].node), shape)
	return true
}

// nearest returns the node where the least is missing for q, -1 for none. Claims of
// others count as missing.
func (s *simulation) nearest(q *capacity.Shape) int {
	best, least := -1, int64(math.MaxInt64)
	for n := range s.now {
		if m := missing(s.left(n), q); m < least {
			best, least = n, m
		}
	}
	return best
}

// end is when an execution ends. The subject is a position in running, or minus
// a position in the queue minus one for an execution that started.
type end struct {
	at      int64
	subject int
}

// endHeap is a heap with the first end at 0.
type endHeap []end

// push adds an end.
func (h *endHeap) push(e end) {
	*h = append(*h, e)
	s := *h
	for i := len(s) - 1; i > 0 && s[i].at < s[(i-1)/2].at; i = (i - 1) / 2 {
		s[i], s[(i-1)/2] = s[(i-1)/2], s[i]
	}
}

// pop removes the first end.
func (h *endHeap) pop() end {
	s := *h
	first, last := s[0], len(s)-1
	s[0] = s[last]
	s = s[:last]
	for i := 0; 2*i+1 < last; {
		child := 2*i + 1
		if child+1 < last && s[child+1].at < s[child].at {
			child++
		}
		if s[i].at <= s[child].at {
			break
		}
		s[i], s[child] = s[child], s[i]
		i = child
	}
	*h = s
	return first
}
