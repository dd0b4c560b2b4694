package packing

import (
	"fmt"
	"math/bits"

	"berth/bench/fragment"
	"berth/bench/trace"
)

// shape is the common request of equal pods.
type shape struct {
	cpu, memory int64    // Thousandths of a vCPU, MiB.
	gpus, milli int      // Devices, and thousandths of each.
	models      uint64   // A bit for each acceptable model; all bits for any.
	spec        string   // The models as the trace names them, in its order.
	kind        int      // Index of its kind for clustering; noKind without GPU.
	names       []string // The models, none for any.
}

const (
	noKind  = -1
	noModel = fragment.NoModel
)

// demand returns the requested thousandths of GPU.
func (s *shape) demand() int64 { return int64(s.gpus) * int64(s.milli) }

// shared reports whether s requests a part of one device.
func (s *shape) shared() bool { return s.gpus == 1 && s.milli < trace.WholeGPU }

// node is the free capacity of one machine.
type node struct {
	cpu, memory int64
	devices     []int // Free thousandths of each device.
	free        int64 // Their sum.
	model       int   // noModel without GPUs.
	kinds       []int // The number of pods of each kind here.
	version     uint32
}

// fits reports whether the free capacity holds one of s.
func (n *node) fits(s *shape) bool {
	if n.cpu < s.cpu || n.memory < s.memory {
		return false
	}
	if s.gpus == 0 {
		return true
	}
	if n.model == noModel || s.models&(1<<n.model) == 0 || n.free < s.demand() {
		return false
	}
	return n.count(s.milli) >= s.gpus
}

// count returns how many devices have milli thousandths free.
func (n *node) count(milli int) int {
	c := 0
	for _, free := range n.devices {
		if free >= milli {
			c++
		}
	}
	return c
}

// tightest returns the devices for one of s, which must fit. A share gets the
// fitting device with the least capacity left. Whole devices are the first idle
// ones.
func (n *node) tightest(s *shape) uint64 {
	if s.shared() {
		best := -1
		for i, free := range n.devices {
			if free >= s.milli && (best < 0 || free < n.devices[best]) {
				best = i
			}
		}
		return 1 << best
	}
	var set uint64
	for i, left := 0, s.gpus; left > 0; i++ {
		if n.devices[i] == trace.WholeGPU {
			set |= 1 << i
			left--
		}
	}
	return set
}

// place is the location of a pod: a node, and a bit for each of its devices.
type place struct {
	node    int
	devices uint64
}

// board tracks the free capacity of a cluster.
type board struct {
	nodes    []node
	capacity int64 // Thousandths of GPU.
}

// newBoard returns the empty cluster.
func newBoard(w *workload, order []int) *board {
	b := &board{nodes: make([]node, len(order)), capacity: w.capacity}
	for i, from := range order {
		n := &w.nodes[from]
		at := &b.nodes[i]
		*at = node{
			cpu: n.CPUMilli, memory: n.MemoryMiB, model: w.modelOf(n),
			devices: make([]int, n.GPUs), kinds: make([]int, w.kinds), version: 1,
		}
		for d := range at.devices {
			at.devices[d] = trace.WholeGPU
		}
		at.free = int64(n.GPUs) * trace.WholeGPU
	}
	return b
}

// take allocates a place to one of s.
func (b *board) take(s *shape, at place) {
	b.move(s, at, -1)
}

// give frees a place of one of s.
func (b *board) give(s *shape, at place) {
	b.move(s, at, 1)
}

func (b *board) move(s *shape, at place, sign int64) {
	n := &b.nodes[at.node]
	n.cpu += sign * s.cpu
	n.memory += sign * s.memory
	for set := at.devices; set != 0; set &= set - 1 {
		n.devices[bits.TrailingZeros64(set)] += int(sign) * s.milli
	}
	n.free += sign * s.demand()
	if s.kind != noKind {
		n.kinds[s.kind] -= int(sign)
	}
	n.version++
}

// check returns why one of s may not be placed there, or nil.
func (b *board) check(s *shape, at place) error {
	if at.node < 0 || at.node >= len(b.nodes) {
		return fmt.Errorf("placed on node %d of %d", at.node, len(b.nodes))
	}
	n := &b.nodes[at.node]
	switch {
	case n.cpu < s.cpu || n.memory < s.memory:
		return fmt.Errorf("node %d has %d milli-vCPU and %d MiB free; %d and %d were allocated",
			at.node, n.cpu, n.memory, s.cpu, s.memory)
	case bits.OnesCount64(at.devices) != s.gpus:
		return fmt.Errorf("%d GPUs allocated for %d requested", bits.OnesCount64(at.devices), s.gpus)
	case s.gpus > 0 && (n.model == noModel || s.models&(1<<n.model) == 0):
		return fmt.Errorf("node %d has no acceptable model", at.node)
	}
	for set := at.devices; set != 0; set &= set - 1 {
		d := bits.TrailingZeros64(set)
		if d >= len(n.devices) || n.devices[d] < s.milli {
			return fmt.Errorf("GPU %d of node %d does not have %d thousandths free", d, at.node, s.milli)
		}
	}
	return nil
}
