package scheduler_test

import (
	"fmt"
	"slices"

	"berth/compute"
	"berth/scheduler"
)

// oracle is the rules of Pack written down a second time, as plainly as can
// be: every node is looked at for every execution, and nothing is remembered.
type oracle struct {
	nodes   []*compute.Node // Copies; Used counts assignments and claims.
	claimed map[string]bool
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
	for e := o.order.next(); e != nil && len(o.out) < limit; e = o.order.next() {
		o.place(e)
	}
	return o.out
}

func (o *oracle) place(e *compute.Execution) {
	r := &e.Request
	possible := slices.ContainsFunc(o.nodes, func(n *compute.Node) bool { return empty(n, r) })
	if !possible || !o.quotas.admits(e) {
		return
	}
	scores, devices := scheduler.Appraise(o.nodes, o.mix, r)
	best, second := -1, -1
	for i, n := range o.nodes {
		fits := empty(n, r) && len(freeGPUs(n, r)) >= r.GPUs && slices.Equal(missing(n, r)[1:], []int64{0, 0})
		if fits != (scores[i] < scheduler.NoFit) {
			panic(fmt.Sprintf("%+v on %+v: fits %v, scored %d", r, n, fits, scores[i]))
		}
		switch {
		case !fits:
		case best < 0 || scores[i] < scores[best]:
			best, second = i, best
		case second < 0 || scores[i] < scores[second]:
			second = i
		}
	}
	if best < 0 {
		o.promise(e)
		return
	}
	choice := compute.Choice{Score: scores[best]}
	if second >= 0 {
		choice.RunnerUp, choice.RunnerUpScore = o.nodes[second].ID, scores[second]
	}
	var gpus []*compute.GPU
	for _, d := range devices[best] {
		gpus = append(gpus, &o.nodes[best].GPUs[d])
	}
	o.out = append(o.out, compute.Assignment{
		Execution: e.ID, Node: o.nodes[best].ID, GPUs: hold(o.nodes[best], r, gpus), Choice: choice,
	})
	o.quotas.place(e)
	o.order.given(e)
}

// promise takes the place of a blocked execution.
func (o *oracle) promise(e *compute.Execution) {
	r := &e.Request
	if o.claimed[r.Types()+"/"+r.MIG] {
		return
	}
	o.claimed[r.Types()+"/"+r.MIG] = true
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

// ofOneType returns the GPUs for r that are right: those of the first type of
// which there are enough, or else of the one with the most.
func ofOneType(n *compute.Node, r *compute.Request, right func(*compute.GPU) bool) (best []*compute.GPU) {
	for i := range n.GPUs {
		var out []*compute.GPU
		for j := range n.GPUs {
			g := &n.GPUs[j]
			if r.GPUs > 0 && g.Type == n.GPUs[i].Type && serves(g, r) && right(g) {
				out = append(out, g)
			}
		}
		if len(out) > len(best) {
			best = out
		}
		if len(best) >= r.GPUs {
			break
		}
	}
	return best
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

// missing returns what must become free before r fits.
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
