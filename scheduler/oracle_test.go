package scheduler_test

import (
	"fmt"
	"slices"
	"strings"

	"berth/compute"
	"berth/scheduler"
)

// oracle is the rules of Pack written down a second time, as plainly as can
// be: it scores every node for every execution and caches nothing.
type oracle struct {
	nodes   []*compute.Node // Copies; Used counts assignments and claims.
	claimed map[string]bool
	soft    []*softOracle
	mix     *compute.Mix
	order   *turnOracle
	quotas  *quotaOracle
	out     []compute.Assignment
}

// pack returns the assignments that v must lead to.
func (o *oracle) pack(v *fakeView, limit int) []compute.Assignment {
	o.claimed, o.order, o.quotas = map[string]bool{}, newTurnOracle(v), newQuotaOracle(v)
	o.mix = v.mix
	for _, n := range v.nodes {
		clone := *n
		clone.GPUs = slices.Clone(n.GPUs)
		o.nodes = append(o.nodes, &clone)
	}
	o.reserveSoftly(v)
	for e := o.order.next(); e != nil && len(o.out) < limit; e = o.order.next() {
		o.place(e)
		o.setSoft(true)
	}
	return o.out
}

// softOracle is a soft reservation.
type softOracle struct {
	of   *compute.Execution
	node *compute.Node
	gpus []*compute.GPU
	held bool
}

// reserveSoftly makes soft reservations of capacity that has just become free,
// for blocked executions with several GPUs. In these worlds the time of later
// releases is unknown.
func (o *oracle) reserveSoftly(v *fakeView) {
	heads, milli := map[string]int{}, map[string]int{}
	order := newTurnOracle(v)
	for e := order.next(); e != nil; e = order.next() {
		r := &e.Request
		if r.GPUs < 2 || e.Reason != compute.ReasonGPUsBusy && e.Reason != compute.ReasonResourcesBusy {
			continue
		}
		kind, all := kindOf(r), 0
		for _, n := range o.nodes {
			for i := range n.GPUs {
				if n.State == compute.NodeUp && !n.Drained && serves(&n.GPUs[i], withoutMemory(r)) {
					all += compute.WholeGPU
				}
			}
		}
		asked := milli[kind] + r.GPUs*r.MilliGPU
		if heads[kind] > 0 && (heads[kind] == 32 || asked*8 > all) {
			continue
		}
		if best, _, _, devices := o.best(r); best != nil {
			heads[kind]++
			milli[kind] = asked
			o.soft = append(o.soft, &softOracle{of: e, node: best, gpus: devices})
			o.setSoft(true)
		}
	}
}

// setSoft makes soft reservations count as given away, or not.
func (o *oracle) setSoft(held bool) {
	for _, s := range o.soft {
		s.hold(held)
	}
}

func (s *softOracle) hold(held bool) {
	if s.held == held {
		return
	}
	s.held = held
	r, sign := s.of.Request, 1
	if !held {
		sign = -1
	}
	r.VCPUMilli, r.MemoryMiB, r.MilliGPU = int64(sign)*r.VCPUMilli, int64(sign)*r.MemoryMiB, sign*r.MilliGPU
	hold(s.node, &r, s.gpus)
}

func (o *oracle) place(e *compute.Execution) {
	r := &e.Request
	o.soft = slices.DeleteFunc(o.soft, func(s *softOracle) bool {
		if s.of == e {
			s.hold(false)
		}
		return s.of == e
	})
	possible := slices.ContainsFunc(o.nodes, func(n *compute.Node) bool { return empty(n, r) })
	if !possible || !o.quotas.admits(e) {
		return
	}
	best, second, choice, gpus := o.best(r)
	if best == nil {
		o.setSoft(false)
		best, second, choice, gpus = o.best(r)
	}
	if best == nil {
		o.promise(e)
		return
	}
	if second != nil {
		choice.RunnerUp = second.ID
	}
	o.out = append(o.out, compute.Assignment{
		Execution: e.ID, Node: best.ID, GPUs: hold(best, r, gpus), Choice: choice,
	})
	o.quotas.place(e)
	o.order.given(e)
}

// best returns the best node for r and the next best, nil for none, with their
// scores, and the GPUs on the best.
func (o *oracle) best(r *compute.Request) (best, second *compute.Node, choice compute.Choice, gpus []*compute.GPU) {
	scores, devices := scheduler.ScoreAll(o.nodes, o.mix, r)
	first := -1
	for i, n := range o.nodes {
		fits := empty(n, r) && len(freeGPUs(n, r)) >= r.GPUs && slices.Equal(missing(n, r)[1:], []int64{0, 0})
		if fits != (scores[i] < scheduler.NoFit) {
			panic(fmt.Sprintf("%+v on %+v: fits %v, scored %d", r, n, fits, scores[i]))
		}
		switch {
		case !fits:
		case best == nil || scores[i] < choice.Score:
			if second = best; best != nil {
				choice.RunnerUpScore = choice.Score
			}
			first, best, choice.Score = i, n, scores[i]
		case second == nil || scores[i] < choice.RunnerUpScore:
			second, choice.RunnerUpScore = n, scores[i]
		}
	}
	if best == nil {
		return nil, nil, choice, nil
	}
	for _, d := range devices[first] {
		gpus = append(gpus, &best.GPUs[d])
	}
	return best, second, choice, gpus
}

// promise takes the place of a blocked execution.
func (o *oracle) promise(e *compute.Execution) {
	r := &e.Request
	if o.claimed[kindOf(r)] {
		return
	}
	o.claimed[kindOf(r)] = true
	var best *compute.Node
	var least []int64
	for _, n := range o.nodes {
		if !empty(n, r) {
			continue
		}
		if m := missing(n, r); best == nil || slices.Compare(m, least) < 0 {
			best, least = n, m
		}
	}
	hold(best, r, mostFree(best, r))
	o.quotas.promise(e)
}

// kindOf names the kinds that a request accepts, whichever of them is preferred.
func kindOf(r *compute.Request) string {
	types := strings.Split(r.Types(), "|")
	slices.Sort(types)
	return fmt.Sprint(types, "/", r.MIG, "/", r.MinVRAMMiB)
}

// withoutMemory returns r for GPUs of any memory: the capacity that bounds
// reservations is counted by type.
func withoutMemory(r *compute.Request) *compute.Request {
	whole := *r
	whole.MinVRAMMiB = 0
	return &whole
}

// serves reports whether a healthy GPU is of the kind asked for.
func serves(g *compute.GPU, r *compute.Request) bool { return g.Health == compute.HealthOK && g.Is(*r) }

// empty reports whether n would host r if nothing were given away.
func empty(n *compute.Node, r *compute.Request) bool {
	return n.State == compute.NodeUp && !n.Drained && n.VCPUMilli >= r.VCPUMilli &&
		n.MemoryMiB >= r.MemoryMiB && len(allOf(n, r)) >= r.GPUs
}

func allOf(n *compute.Node, r *compute.Request) []*compute.GPU {
	return ofOneType(n, r, func(*compute.GPU) bool { return true })
}

// ofOneType returns the right GPUs for r, all of one type. Among the types with enough of
// them it takes the one that r prefers, or else the first. If no type has enough, it
// takes the one with the most.
func ofOneType(n *compute.Node, r *compute.Request, right func(*compute.GPU) bool) (best []*compute.GPU) {
	for i := range n.GPUs {
		if !n.GPUs[i].Is(*r) {
			continue // A slice of a type that r accepts only whole does not make it the first.
		}
		var out []*compute.GPU
		for j := range n.GPUs {
			g := &n.GPUs[j]
			if g.Type == n.GPUs[i].Type && serves(g, r) && right(g) {
				out = append(out, g)
			}
		}
		better := len(out) > len(best)
		if len(out) >= r.GPUs && len(best) >= r.GPUs {
			better = preference(r, out[0]) < preference(r, best[0])
		}
		if better {
			best = out
		}
	}
	return best
}

// preference returns the place of the type of g in the preference of r, the same for
// all types if r prefers none.
func preference(r *compute.Request, g *compute.GPU) int {
	if !r.Ranked {
		return 0
	}
	return slices.Index(r.AnyOf, g.Type)
}

// freeGPUs returns the GPUs with the share free, the fullest first.
func freeGPUs(n *compute.Node, r *compute.Request) []*compute.GPU {
	out := ofOneType(n, r, func(g *compute.GPU) bool { return compute.WholeGPU-g.UsedMilli >= r.MilliGPU })
	slices.SortStableFunc(out, func(a, b *compute.GPU) int { return b.UsedMilli - a.UsedMilli })
	return out
}

// mostFree returns as many GPUs as r needs, the emptiest first.
func mostFree(n *compute.Node, r *compute.Request) []*compute.GPU {
	out := allOf(n, r)
	slices.SortStableFunc(out, func(a, b *compute.GPU) int { return a.UsedMilli - b.UsedMilli })
	return out[:r.GPUs]
}

// missing returns the capacity that must become free before r fits.
func missing(n *compute.Node, r *compute.Request) []int64 {
	m := make([]int64, 3)
	for _, g := range mostFree(n, r) {
		m[0] += int64(max(0, r.MilliGPU-(compute.WholeGPU-g.UsedMilli)))
	}
	m[1] = max(0, r.VCPUMilli-(n.VCPUMilli-n.UsedVCPUMilli))
	m[2] = max(0, r.MemoryMiB-(n.MemoryMiB-n.UsedMemoryMiB))
	return m
}

// hold takes r from n.
func hold(n *compute.Node, r *compute.Request, gpus []*compute.GPU) (shares []compute.GPUShare) {
	n.UsedVCPUMilli += r.VCPUMilli
	n.UsedMemoryMiB += r.MemoryMiB
	for _, g := range gpus {
		g.UsedMilli += r.MilliGPU
		shares = append(shares, compute.GPUShare{GPU: g.ID, Milli: r.MilliGPU})
	}
	return shares
}
