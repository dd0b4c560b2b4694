package scheduler

import (
	"math"

	"berth/compute"
)

// The scores of nodes that do not take a shape now, by why. Lower is better,
// so the best score over all nodes is also the most hopeful refusal, and with
// it the reason why the execution waits.
const (
	neverFits     = math.MaxInt64 - iota // Would not fit on the empty node.
	nodeDown                             // Would fit, but the node is down or drained, or its GPUs are.
	gpusBusy                             // Too few GPUs have the share free.
	resourcesBusy                        // The GPUs are free, vCPU or memory is not.
	worstFit                             // No fit scores worse than this.
)

// gpuWeight is what a thousandth of a GPU weighs against a thousandth of a
// vCPU: the best-fit that is published for the openb trace, whose largest
// machine has 8 GPUs and 128 vCPUs, kept in integers.
const gpuWeight = 16

// strandShift makes any stranded GPU weigh more than any leftover, which stays
// below 2^40: 64 GPUs are 2^20, a million vCPUs 2^30.
const strandShift = 40

// score returns how well q fits on s, lower is better: first the fewest GPUs
// left without the vCPU and memory to use them, then the tightest fit. CPU-only
// work so goes to nodes without free GPUs first.
func (s *slot) score(q *shape) int64 {
	if s.lacks(q) {
		return neverFits
	}
	if !s.fits(q) {
		return s.refusal(q)
	}
	gpu := s.gpuFree - int64(q.gpus)*int64(q.milli)
	vcpu, memory := s.vcpu-q.vcpu, s.memory-q.memory
	grown := s.stranded(gpu, vcpu, memory) - s.stranded(s.gpuFree, s.vcpu, s.memory)
	return grown<<strandShift + gpuWeight*gpu + vcpu
}

// refusal returns why q, which does not fit on s now, does not.
func (s *slot) refusal(q *shape) int64 {
	known, healthy := 0, 0
	for i := range s.devices {
		if d := &s.devices[i]; d.is(q) {
			known++
			if d.health == compute.HealthOK {
				healthy++
			}
		}
	}
	switch {
	case known < q.gpus || s.node.VCPUMilli < q.vcpu || s.node.MemoryMiB < q.memory:
		return neverFits
	case !s.open || healthy < q.gpus:
		return nodeDown
	case s.freeDevices(q) < q.gpus:
		return gpusBusy
	}
	return resourcesBusy
}

// reasonOf returns the typed reason that stands for a refusal.
func reasonOf(score int64) compute.Reason {
	switch score {
	case neverFits:
		return compute.ReasonNeverFits
	case nodeDown:
		return compute.ReasonNodesDown
	case gpusBusy:
		return compute.ReasonGPUsBusy
	case resourcesBusy:
		return compute.ReasonResourcesBusy
	}
	return compute.ReasonNone
}

// stranded returns how many of gpu free thousandths could not be used because
// the free vCPU or memory beside them is short of their share of the node.
func (s *slot) stranded(gpu, vcpu, memory int64) int64 {
	if s.healthy == 0 || gpu <= 0 {
		return 0
	}
	whole := s.healthy * compute.WholeGPU
	fed := gpu
	if s.node.VCPUMilli > 0 {
		fed = min(fed, max(vcpu, 0)*whole/s.node.VCPUMilli)
	}
	if s.node.MemoryMiB > 0 {
		fed = min(fed, max(memory, 0)*whole/s.node.MemoryMiB)
	}
	return gpu - fed
}
