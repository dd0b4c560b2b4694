package packing

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"berth/bench/trace"
	"berth/compute"
	"berth/scheduler"
)

// own is Berth's policy: the board of the leader's Packer, and the demand
// learned from the arrived pods, by the state machine's own code.
type own struct {
	board    *scheduler.Board
	requests []compute.Request // By shape.
	learner  *compute.Learner  // Nil if the board knows the whole mix.
}

// newOwn returns Berth's policy on the empty cluster. An oracle knows the mix
// of the trace from the first pod on.
func newOwn(w *workload, order []int, oracle bool) *own {
	nodes := make([]*compute.Node, len(order))
	for i, from := range order {
		nodes[i] = record(i, &w.nodes[from])
	}
	p := &own{board: scheduler.NewBoard(slices.Values(nodes)), learner: new(compute.Learner)}
	for i := range w.shapes {
		p.requests = append(p.requests, request(&w.shapes[i]))
	}
	if oracle {
		p.learner = nil
		p.board.SetMix(mixOf(w, p.requests))
	}
	return p
}

// record returns the state's record of a node.
func record(i int, n *trace.Node) *compute.Node {
	out := &compute.Node{
		Name: n.Name, VCPUMilli: n.CPUMilli, MemoryMiB: n.MemoryMiB,
		ID: compute.NodeID{UUID: compute.UUID{1, 14: byte(i >> 8), 15: byte(i), 13: byte(i >> 16)}},
	}
	for d := range n.GPUs {
		out.GPUs = append(out.GPUs, compute.GPU{
			ID: compute.GPUID(fmt.Sprintf("SIM-%s-%d", n.Name, d)), Index: d, Type: strings.ToLower(n.Model),
		})
	}
	return out
}

// request returns a pod's request as that of an execution.
func request(s *shape) compute.Request {
	r := compute.Request{GPUs: s.gpus, MilliGPU: s.milli, VCPUMilli: s.cpu, MemoryMiB: s.memory}
	if s.gpus == 0 {
		return r
	}
	for _, name := range s.names {
		r.AnyOf = append(r.AnyOf, strings.ToLower(name))
	}
	slices.Sort(r.AnyOf)
	r.AnyOf = slices.Compact(r.AnyOf)
	return r
}

// mixOf returns the demand of the whole trace.
func mixOf(w *workload, requests []compute.Request) *compute.Mix {
	counts := make([]uint64, len(requests))
	for _, shape := range w.pods {
		counts[shape]++
	}
	m := &compute.Mix{Version: 1}
	for i, r := range requests {
		m.Shares = append(m.Shares, compute.MixShare{Request: r, Count: counts[i]})
	}
	slices.SortFunc(m.Shares, func(a, b compute.MixShare) int {
		return strings.Compare(a.Request.Key(), b.Request.Key())
	})
	return m
}

// place allocates a place for one pod.
func (p *own) place(shape int) (place, bool) {
	r := &p.requests[shape]
	if p.learner != nil && p.learner.Learn(*r) {
		p.board.SetMix(p.learner.Mix())
	}
	placed, ok := p.board.Place(r)
	if !ok {
		return place{}, false
	}
	at := place{node: placed.Node}
	for _, d := range placed.Devices {
		at.devices |= 1 << d
	}
	return at, true
}

// release frees a place.
func (p *own) release(shape int, at place) {
	var devices []int
	for set := at.devices; set != 0; set &= set - 1 {
		devices = append(devices, bits.TrailingZeros64(set))
	}
	p.board.Release(p.board.At(&p.requests[shape], at.node, devices))
}
