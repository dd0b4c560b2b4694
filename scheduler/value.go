package scheduler

import (
	"berth/compute"
	"berth/compute/capacity"
)

// Weights of the placement policy, in thousandths of a GPU. None is tuned to a
// workload. DESIGN.md gives the purpose of each, and the effect of halving or doubling
// it.
const (
	step       = 40 // Costs within a step are equal.
	typeWeight = 3  // Weight of the pressure on a type, cubed.

	// Part of the GPU at risk beside free capacity for CPU-only work. Nothing is at
	// risk while at most nine tenths of the vCPU and of the memory are asked for.
	// Half of it is when a tenth more is asked for than exists.
	riskFrom, riskTo = 0.9, 1.1
	riskMost         = 0.5
)

// Values are integers with this many binary places, so that every node computes
// the same: sixteen for values, twenty-four for the slopes that convert vCPU
// and memory to GPU.
const (
	places      = 16
	one         = 1 << places
	slopePlaces = 24

	maxFree  = 1 << 30 // vCPU thousandths and MiB of a node beyond this do not count.
	maxSlope = 1 << 32
	maxWorth = 1 << (20 + places) // A thousand GPUs.
	slack    = 64                 // Bound of the rounding error of a cost.
)

// value computes the worth of a node's free capacity, given the demand and the supply
// of the cluster. It is immutable.
type value struct {
	// residues is the loss from a free share of a device, by thousandths: the
	// whole share, as far as the demand asks for more at once.
	residues [compute.WholeGPU + 1]int64

	vcpu, memory frontier // How much of the GPU beside it each feeds.

	cpuOnly []cpuClass
	scarce  []int64 // Cost of a thousandth of a GPU, by kind.
	groups  []group
}

// cpuClass is CPU-only work of one size.
type cpuClass struct {
	vcpu, memory int64
	risk         int64 // Part of the GPU beside it that it takes the vCPU from.
}

// fed returns how much GPU an amount feeds.
func fed(amount, slope int64) int64 {
	return min(min(max(amount, 0), maxFree)*slope>>(slopePlaces-places), maxWorth)
}

// rest returns the value of gpu free thousandths given the free vCPU and memory
// beside them. Stranded GPU is lost. So is a part of the rest where CPU-only
// work would fit, because that work would strand it.
func (v *value) rest(gpu, vcpu, memory int64) int64 {
	if gpu <= 0 {
		return 0
	}
	served := min(v.vcpu.feeds(gpu, vcpu), v.memory.feeds(gpu, memory))
	risk := int64(0)
	for i := range v.cpuOnly {
		if c := &v.cpuOnly[i]; vcpu >= c.vcpu && memory >= c.memory {
			risk += c.risk
		}
	}
	return served - gpu<<places - served*risk>>places
}

// change is the capacity and the value that placing a shape takes from a slot.
type change struct {
	kind  int   // Kind of the devices.
	gpu   int64 // Thousandths of a GPU.
	whole int   // Devices that were entirely free.
	loss  int64 // Value lost by the residues.
}

// change returns the change of placing q on s. q must fit.
func (v *value) change(s *slot, q *capacity.Shape) change {
	switch {
	case q.GPUs == 0:
		return change{kind: capacity.Mixed}
	case q.GPUs == 1 && q.Milli < compute.WholeGPU:
		i, loss := s.shareDevice(v, q)
		d := &s.Devices[i]
		c := change{kind: d.Kind, gpu: d.Worth(q.Milli), loss: loss}
		if d.Free == compute.WholeGPU {
			c.whole = 1
		}
		return c
	case q.Milli == compute.WholeGPU && s.Uniform != capacity.Mixed:
		return change{kind: s.Uniform, gpu: s.Devices[0].Worth(q.GPUs * q.Milli), whole: q.GPUs}
	}
	var buffer [16]int
	c := change{}
	for _, i := range s.pick(v, q, buffer[:0]) {
		d := &s.Devices[i]
		c.kind = d.Kind
		c.gpu += d.Worth(q.Milli)
		c.loss += (v.residues[d.Free-q.Milli] - v.residues[d.Free]) * int64(d.Size) / compute.WholeGPU
		if d.Free == compute.WholeGPU {
			c.whole++
		}
	}
	return c
}

// cost returns the value that s loses when q takes c, plus the price of the
// type of the devices. It leaves out the openings that q takes from other work.
func (v *value) cost(s *slot, q *capacity.Shape, c change) int64 {
	cost := c.loss + s.rest - v.rest(s.GPUFree-c.gpu, s.VCPU-q.VCPU, s.Memory-q.Memory)
	if c.gpu > 0 {
		cost += v.scarce[c.kind] * c.gpu
	}
	return cost
}
