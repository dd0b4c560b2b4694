package packing

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"berth/bench/trace"
)

// ErrNoDemand means that no pod of a trace requests GPUs.
var ErrNoDemand = errors.New("no pod requests a GPU; this benchmark is about GPUs")

// maxModels is the maximum number of GPU models of a cluster: one bit each.
const maxModels = 64

// Inflation is the final demand of the arriving pods, relative to the cluster's
// GPUs.
const Inflation = 1.3

// workload is a trace with equal pods grouped by shape.
type workload struct {
	nodes    []trace.Node
	models   map[string]int
	capacity int64 // Thousandths of GPU.

	shapes []shape
	pods   []int // The shape of each pod, in the trace's order.
	demand int64 // Total demand in thousandths of GPU.
	kinds  int   // Number of kinds of GPU pods.

	unplaceable int // Pods that no node could host, even when empty.
}

// newWorkload returns the workload of a trace.
func newWorkload(nodes []trace.Node, pods []trace.Pod) (*workload, error) {
	w := &workload{
		nodes: nodes, models: map[string]int{},
	}
	for i := range nodes {
		n := &nodes[i]
		w.capacity += int64(n.GPUs) * trace.WholeGPU
		if _, known := w.models[n.Model]; n.GPUs > 0 && !known {
			w.models[n.Model] = len(w.models)
		}
	}
	switch {
	case w.capacity == 0:
		return nil, errors.New("no node has a GPU; this benchmark is about GPUs")
	case len(w.models) > maxModels:
		return nil, fmt.Errorf("%d GPU models among the nodes; at most %d", len(w.models), maxModels)
	}
	known := map[string]int{}
	kinds := map[[2]int]int{}
	for i := range pods {
		w.add(&pods[i], known, kinds)
	}
	w.kinds = len(kinds)
	if w.demand == 0 {
		return nil, ErrNoDemand
	}
	w.countUnplaceable()
	return w, nil
}

// add adds one pod of the trace.
func (w *workload) add(p *trace.Pod, known map[string]int, kinds map[[2]int]int) {
	spec := fmt.Sprint(p.Models)
	key := fmt.Sprint(p.CPUMilli, p.MemoryMiB, p.GPUs, p.GPUMilli, spec)
	at, ok := known[key]
	if !ok {
		s := shape{
			cpu: p.CPUMilli, memory: p.MemoryMiB, gpus: p.GPUs, milli: p.GPUMilli,
			models: w.mask(p.Models), spec: spec, names: p.Models, kind: noKind,
		}
		if s.gpus > 0 {
			s.kind = kindOf(&s, kinds)
		}
		at = len(w.shapes)
		known[key] = at
		w.shapes = append(w.shapes, s)
	}
	w.pods = append(w.pods, at)
	w.demand += p.Demand()
}

// kindOf returns the index of the kind of s. All shares are one kind, and so
// are all pods with the same number of GPUs.
func kindOf(s *shape, kinds map[[2]int]int) int {
	key := [2]int{s.gpus, trace.WholeGPU}
	if s.shared() {
		key = [2]int{0, 0}
	}
	kind, ok := kinds[key]
	if !ok {
		kind = len(kinds)
		kinds[key] = kind
	}
	return kind
}

// mask returns the set of the named models; all models for no name.
func (w *workload) mask(models []string) uint64 {
	if len(models) == 0 {
		return ^uint64(0)
	}
	var set uint64
	for _, model := range models {
		if i, ok := w.models[model]; ok {
			set |= 1 << i
		}
	}
	return set
}

// modelOf returns the index of a node's model.
func (w *workload) modelOf(n *trace.Node) int {
	if n.GPUs == 0 {
		return noModel
	}
	return w.models[n.Model]
}

// countUnplaceable counts the pods that no empty node could host.
func (w *workload) countUnplaceable() {
	empty := newBoard(w, w.order(nil))
	hosted := make([]bool, len(w.shapes))
	for s := range w.shapes {
		hosted[s] = slices.ContainsFunc(empty.nodes, func(n node) bool { return n.fits(&w.shapes[s]) })
	}
	for _, s := range w.pods {
		if !hosted[s] {
			w.unplaceable++
		}
	}
}

// order returns the order of the nodes: random, or that of the file without a
// source.
func (w *workload) order(random *rand.Rand) []int {
	if random != nil {
		return random.Perm(len(w.nodes))
	}
	out := make([]int, len(w.nodes))
	for i := range out {
		out[i] = i
	}
	return out
}

// inflate returns the arriving shapes in order: the shuffled pods of the trace,
// then pods drawn from it until the demand is the given multiple of the
// capacity. If the trace already requests more, random pods are removed until
// it does not.
func (w *workload) inflate(random *rand.Rand, multiple float64) []int {
	out := slices.Clone(w.pods)
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	goal := int64(multiple * float64(w.capacity))
	demand := w.demand
	for demand < goal {
		s := w.pods[random.IntN(len(w.pods))]
		out = append(out, s)
		demand += w.shapes[s].demand()
	}
	for len(out) > 1 && demand-w.shapes[out[len(out)-1]].demand() >= goal {
		last := len(out) - 1 // The order is random, so the last one is a random pod.
		demand -= w.shapes[out[last]].demand()
		out = out[:last]
	}
	return out
}

// source returns the random source for one purpose under a seed.
func source(seed uint64, purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, purpose))
}

// Purposes of randomness. Each has its own source, so that two policies see the
// same pods and the same nodes.
const (
	forNodes uint64 = iota + 1
	forPods
	forPolicy
	forChurn
)
