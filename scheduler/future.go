package scheduler

import (
	"encoding/binary"
	"math"
	"slices"

	"berth/compute"
)

// never is when nothing starts.
const never = math.MaxInt64

// future simulates what may happen to a queue: attempts end, and the queue
// takes the room in its order, with the claims of Pack. It places by best fit
// and not by the policy of Pack, which would cost far more and change little
// of the time.
type future struct {
	types  *types
	shapes map[shape]int // Numbers of the shapes in the queue.
	rooms  []room
	queue  []waiter
	live   []tenant
	quotas []allowance
	scopes map[compute.OrgID][]int // Which of the quotas are of an organization.

	// Of one round:
	round   uint64
	now     []room
	behind  []*room        // What claims leave of a node for those behind; nil for all of it.
	failed  []bool         // By shape: nothing behind in this walk fits either.
	used    []compute.Load // By quota.
	claims  [][]claim      // By GPU type.
	ends    endings
	starts  []int64
	waiting []int    // Places in the queue, in order.
	placed  []tenant // What has started, by place in the queue.
}

// room is what a node has left.
type room struct {
	vcpu, memory       int64
	allVCPU, allMemory int64 // Of the empty node.
	free               []int // Thousandths by device.
	kinds              []int // Of the devices; closedKind for those that take nothing.
}

// closedKind is the kind of devices that nothing asks for.
const closedKind = -1

// waiter is one execution of the queue.
type waiter struct {
	tenant

	id     compute.ExecutionID
	number int  // Of its shape.
	over   bool // A quota of it was used up when it was last looked at.
}

// tenant is what holds room.
type tenant struct {
	node    int
	seed    uint64
	quotas  []int // That it counts in.
	held    int64 // Thousandths of GPU, as quotas count.
	shape   shape
	devices []int
	times   *runTimes
	limit   int64 // Milliseconds that it may take.
	taken   int64 // Milliseconds that it has taken.
	by      int64 // Milliseconds until it has made room at the latest, if it was asked to; never if not.
}

// allowance is a quota and what counts in it at the beginning.
type allowance struct {
	compute.Quota

	load compute.Load
}

// claim is the room that a blocked execution waits for.
type claim struct{ waiter, node int }

// newFuture reads v.
func newFuture(v LiveView) *future {
	f := &future{types: newTypes(), shapes: map[shape]int{}, scopes: map[compute.OrgID][]int{}}
	past := learn(v)
	for n := range v.Nodes() {
		r, devices := f.room(n)
		if !n.Schedulable() {
			continue // What ends there makes no room.
		}
		for _, w := range v.Work(n.ID) {
			by := int64(never)
			if !w.Attempt.PreemptAt.IsZero() {
				by = w.LatestEnd().Sub(v.Now()).Milliseconds()
			}
			f.live = append(f.live, tenant{
				node: len(f.rooms), seed: seedOf(w.Execution.ID), by: by,
				quotas: f.quotasOf(v, w.Execution), held: w.Execution.Request.HeldMilliGPU(),
				shape: f.types.shape(&w.Execution.Request), devices: devicesOf(devices, w.Attempt.GPUs),
				times: past.of(w.Execution), limit: w.Execution.Timeout.Milliseconds(),
				taken: v.Now().Sub(w.Attempt.PlacedAt).Milliseconds(),
			})
		}
		f.rooms = append(f.rooms, r)
	}
	for e := range Order(v) {
		if len(f.queue) == MaxEstimated {
			break
		}
		w := waiter{id: e.ID, tenant: tenant{
			seed: seedOf(e.ID), quotas: f.quotasOf(v, e), held: e.Request.HeldMilliGPU(),
			shape: f.types.shape(&e.Request), times: past.of(e), limit: e.Timeout.Milliseconds(), by: never,
		}}
		if _, known := f.shapes[w.shape]; !known {
			f.shapes[w.shape] = len(f.shapes)
		}
		w.number = f.shapes[w.shape]
		f.queue = append(f.queue, w)
	}
	return f
}

// quotasOf returns the quotas that e counts in.
func (f *future) quotasOf(v View, e *compute.Execution) (own []int) {
	all, known := f.scopes[e.Org]
	if !known {
		for _, q := range v.Quotas(e.Org) {
			all = append(all, len(f.quotas))
			f.quotas = append(f.quotas, allowance{q, v.Load(q)})
		}
		f.scopes[e.Org] = all
	}
	for _, i := range all {
		if f.quotas[i].Concerns(e) {
			own = append(own, i)
		}
	}
	return own
}

// room returns what n has left, and its devices by identifier.
func (f *future) room(n *compute.Node) (room, map[compute.GPUID]int) {
	var s slot
	s.load(n, f.types)
	r := room{vcpu: s.vcpu, memory: s.memory, allVCPU: n.VCPUMilli, allMemory: n.MemoryMiB}
	devices := make(map[compute.GPUID]int, len(n.GPUs))
	for i := range s.devices {
		d := &s.devices[i]
		k := d.kind
		if !d.usable() {
			k = closedKind
		}
		r.free = append(r.free, d.free)
		r.kinds = append(r.kinds, k)
		devices[n.GPUs[i].ID] = i
	}
	return r, devices
}

// devicesOf returns which devices an attempt holds.
func devicesOf(devices map[compute.GPUID]int, shares []compute.GPUShare) []int {
	var out []int
	for _, s := range shares {
		if i, ok := devices[s.GPU]; ok {
			out = append(out, i)
		}
	}
	return out
}

func seedOf(id compute.ExecutionID) uint64 { return mix(binary.BigEndian.Uint64(id.UUID[8:])) }

// simulate returns when each execution of the queue starts in one future, in
// milliseconds from now.
func (f *future) simulate(round uint64) []int64 {
	f.begin(round)
	f.walk(0, 0, len(f.now))
	for left := maxEvents; len(f.ends) > 0 && len(f.waiting) > 0 && left > 0; left-- {
		e := f.ends.pop()
		t := &f.placed[max(-e.who-1, 0)]
		if e.who >= 0 {
			t = &f.live[e.who]
		}
		f.now[t.node].give(&t.shape, t.devices, -1)
		f.count(t, -1)
		f.walk(e.at, t.node, t.node+1)
	}
	return f.starts
}

// begin sets the round to the present.
func (f *future) begin(round uint64) {
	f.round = mix(round)
	f.now = make([]room, len(f.rooms))
	for i := range f.rooms {
		f.now[i] = f.rooms[i].clone()
	}
	f.behind = make([]*room, len(f.rooms))
	f.failed = make([]bool, len(f.shapes))
	f.used = make([]compute.Load, len(f.quotas))
	for i := range f.quotas {
		f.used[i] = f.quotas[i].load
	}
	f.claims = make([][]claim, len(f.types.inSets)+1)
	f.ends = f.ends[:0]
	for i := range f.live {
		t := &f.live[i]
		f.ends.push(end{min(t.times.draw(mix(t.seed^f.round), t.limit, t.taken), max(t.by, 1)), i})
	}
	f.starts, f.waiting = make([]int64, len(f.queue)), make([]int, len(f.queue))
	f.placed = make([]tenant, len(f.queue))
	for i := range f.queue {
		f.starts[i], f.waiting[i], f.queue[i].over = never, i, false
	}
}

// walk lets what waits, in its order, have the room of some nodes. Room only
// shrinks on the way, so what one could not have, none of its shape can.
func (f *future) walk(at int64, first, last int) {
	clear(f.failed)
	clear(f.behind)
	still := f.waiting[:0]
	for _, i := range f.waiting {
		if !f.start(i, at, first, last) {
			still = append(still, i)
			f.hold(i)
		}
	}
	f.waiting = still
}

// start starts a waiter on one of the nodes, if it may and fits.
func (f *future) start(i int, at int64, first, last int) bool {
	w := &f.queue[i]
	if was := w.over; was {
		first, last = 0, len(f.now) // There may have been room for it elsewhere.
	} else if f.failed[w.number] {
		return false
	}
	if w.over = f.over(w); w.over {
		return false
	}
	for n := first; n < last; n++ {
		r := f.behind[n]
		if r == nil {
			r = &f.now[n]
		}
		if !r.fits(&w.shape) {
			continue
		}
		t := w.tenant
		t.node, t.devices = n, r.pick(&w.shape)
		f.now[n].give(&t.shape, t.devices, 1)
		if f.behind[n] != nil {
			r.give(&t.shape, t.devices, 1)
		}
		f.count(&t, 1)
		f.starts[i], f.placed[i] = at, t
		f.ends.push(end{at + t.times.draw(mix(t.seed^f.round), t.limit, 0), -i - 1})
		f.claims[t.shape.gpuType] = slices.DeleteFunc(f.claims[t.shape.gpuType], func(c claim) bool { return c.waiter == i })
		return true
	}
	f.failed[w.number] = true
	return false
}

// over reports whether a quota of w is used up.
func (f *future) over(w *waiter) bool {
	for _, i := range w.quotas {
		q, used := &f.quotas[i], &f.used[i]
		if q.Concurrent > 0 && used.Attempts >= q.Concurrent || q.MilliGPU > 0 && used.MilliGPU+w.held > q.MilliGPU {
			return true
		}
	}
	return false
}

// count counts t in its quotas, or takes it out.
func (f *future) count(t *tenant, sign int) {
	for _, i := range t.quotas {
		f.used[i].Attempts += sign
		f.used[i].MilliGPU += int64(sign) * t.held
	}
}

// maxClaims is how many waiters of one type claim room in a future: as some
// more than the first have room reserved, if they ask for several GPUs.
const maxClaims = 4

// hold keeps the room that a waiter claims from those behind it. The first
// that are blocked of their type claim the nodes where least is missing.
func (f *future) hold(i int) {
	w := &f.queue[i]
	if w.over {
		return
	}
	all := f.claims[w.shape.gpuType]
	at := slices.IndexFunc(all, func(c claim) bool { return c.waiter == i })
	if at < 0 {
		if len(all) > 0 && (w.shape.gpus < 2 || len(all) == maxClaims) {
			return
		}
		node := f.nearest(&w.shape)
		if node < 0 {
			return
		}
		at, all = len(all), append(all, claim{i, node})
		f.claims[w.shape.gpuType] = all
	}
	r := f.behind[all[at].node]
	if r == nil {
		r = &f.now[all[at].node]
	}
	f.behind[all[at].node] = r.without(&w.shape)
}

// nearest returns the node where least is missing for q, -1 for none.
func (f *future) nearest(q *shape) int {
	best, least := -1, int64(math.MaxInt64)
	for n := range f.now {
		r := f.behind[n] // What others claim is missing too.
		if r == nil {
			r = &f.now[n]
		}
		if m := r.missing(q); m < least {
			best, least = n, m
		}
	}
	return best
}

// end is when something ends: a live attempt by its number, or what has
// started, as minus its place in the queue minus one.
type end struct {
	at  int64
	who int
}

// endings is a heap: the first that ends is at 0.
type endings []end

// push adds an end.
func (h *endings) push(e end) {
	*h = append(*h, e)
	s := *h
	for i := len(s) - 1; i > 0 && s[i].at < s[(i-1)/2].at; i = (i - 1) / 2 {
		s[i], s[(i-1)/2] = s[(i-1)/2], s[i]
	}
}

// pop removes the first end.
func (h *endings) pop() end {
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
