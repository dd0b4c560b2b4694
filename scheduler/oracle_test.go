package scheduler_test

import (
	"cmp"
	"slices"

	"berth/compute"
)

// oracle is the rules of Pack written down a second time, as plainly as can
// be: every node is looked at for every execution, and nothing is remembered.
type oracle struct {
	nodes   []*compute.Node // Copies; Used counts assignments and claims.
	running map[compute.OrgID]int
	claimed map[string]bool
	out     []compute.Assignment
}

// pack returns the assignments that v must lead to.
func (o *oracle) pack(v *fakeView, limit int) []compute.Assignment {
	o.running, o.claimed = map[compute.OrgID]int{}, map[string]bool{}
	for _, n := range v.nodes {
		clone := *n
		clone.GPUs = slices.Clone(n.GPUs)
		o.nodes = append(o.nodes, &clone)
	}
	for _, e := range v.queue {
		if len(o.out) == limit {
			break
		}
		o.place(v, e)
	}
	return o.out
}

func (o *oracle) place(v *fakeView, e *compute.Execution) {
	r := &e.Request
	possible := slices.ContainsFunc(o.nodes, func(n *compute.Node) bool { return empty(n, r) })
	limit := v.limits[e.Org]
	if !possible || limit > 0 && v.running[e.Org]+o.running[e.Org] >= limit {
		return
	}
	fitting := slices.Clone(o.nodes)
	fitting = slices.DeleteFunc(fitting, func(n *compute.Node) bool {
		return !empty(n, r) || len(freeGPUs(n, r)) < r.GPUs || missing(n, r) != [3]int64{}
	})
	if len(fitting) == 0 {
		o.promise(r)
		return
	}
	slices.SortStableFunc(fitting, func(a, b *compute.Node) int { return cmp.Compare(cost(a, r), cost(b, r)) })
	best := fitting[0]
	choice := compute.Choice{Score: cost(best, r)}
	if len(fitting) > 1 {
		choice.RunnerUp, choice.RunnerUpScore = fitting[1].ID, cost(fitting[1], r)
	}
	gpus := freeGPUs(best, r)[:r.GPUs]
	o.out = append(o.out, compute.Assignment{Execution: e.ID, Node: best.ID, GPUs: hold(best, r, gpus), Choice: choice})
	o.running[e.Org]++
}

// promise takes the place of a blocked execution.
func (o *oracle) promise(r *compute.Request) {
	if o.claimed[r.GPUType] {
		return
	}
	o.claimed[r.GPUType] = true
	var best *compute.Node
	var least [3]int64
	for _, n := range o.nodes {
		if !empty(n, r) {
			continue
		}
		if m := missing(n, r); best == nil || slices.Compare(m[:], least[:]) < 0 {
			best, least = n, m
		}
	}
	hold(best, r, mostFree(best, r))
}

// serves reports whether a healthy GPU is of the kind asked for.
func serves(g *compute.GPU, r *compute.Request) bool {
	slice := g.MIG
	if slice == "disabled" {
		slice = ""
	}
	return g.Health == compute.HealthOK && g.Type == r.GPUType && slice == r.MIG
}

// empty reports whether n would host r if nothing were given away.
func empty(n *compute.Node, r *compute.Request) bool {
	return n.State == compute.NodeUp && !n.Drained && n.VCPUMilli >= r.VCPUMilli &&
		n.MemoryMiB >= r.MemoryMiB && len(allOf(n, r)) >= r.GPUs
}

func allOf(n *compute.Node, r *compute.Request) (out []*compute.GPU) {
	for i := range n.GPUs {
		if r.GPUs > 0 && serves(&n.GPUs[i], r) {
			out = append(out, &n.GPUs[i])
		}
	}
	return out
}

// freeGPUs returns the GPUs with the share free, the fullest first.
func freeGPUs(n *compute.Node, r *compute.Request) []*compute.GPU {
	out := slices.DeleteFunc(allOf(n, r), func(g *compute.GPU) bool {
		return compute.WholeGPU-g.UsedMilli < r.MilliGPU
	})
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
func missing(n *compute.Node, r *compute.Request) (m [3]int64) {
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

// cost is the stranded GPU that placing r adds, then what it leaves.
func cost(n *compute.Node, r *compute.Request) int64 {
	free, gpus := int64(0), int64(0)
	for _, g := range n.GPUs {
		if g.Health == compute.HealthOK {
			free += int64(compute.WholeGPU - g.UsedMilli)
			gpus++
		}
	}
	vcpu, memory := n.VCPUMilli-n.UsedVCPUMilli, n.MemoryMiB-n.UsedMemoryMiB
	strands := func(free, vcpu, memory int64) int64 {
		if free <= 0 || gpus == 0 {
			return 0
		}
		fed := min(free, max(0, vcpu)*gpus*1000/n.VCPUMilli, max(0, memory)*gpus*1000/n.MemoryMiB)
		return free - fed
	}
	left := free - int64(r.GPUs*r.MilliGPU)
	grown := strands(left, vcpu-r.VCPUMilli, memory-r.MemoryMiB) - strands(free, vcpu, memory)
	return grown<<40 + 16*left + vcpu - r.VCPUMilli
}
