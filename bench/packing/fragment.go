package packing

import (
	"cmp"
	"slices"

	"berth/bench/fragment"
	"berth/bench/trace"
)

// targetShare is the share of the pods that the target workload covers.
const targetShare = 0.95

// target returns the target workload of FGD: the most frequent classes of the
// trace until they cover 95 % of the pods, including CPU-only pods. It ignores
// memory.
func target(w *workload) []fragment.Class {
	type key struct {
		cpu         int64
		gpus, milli int
		spec        string
	}
	type class struct {
		key
		models uint64
		count  int
	}
	index := map[key]int{}
	var classes []class
	for _, i := range w.pods {
		s := &w.shapes[i]
		k := key{s.cpu, s.gpus, s.milli, s.spec}
		at, ok := index[k]
		if !ok {
			at = len(classes)
			index[k] = at
			classes = append(classes, class{key: k, models: s.models})
		}
		classes[at].count++
	}
	slices.SortFunc(classes, func(a, b class) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(b.cpu, a.cpu),
			cmp.Compare(b.milli, a.milli), cmp.Compare(b.gpus, a.gpus), cmp.Compare(b.spec, a.spec))
	})
	covered, n := 0, 0
	for n < len(classes) && float64(covered) < targetShare*float64(len(w.pods)) {
		covered += classes[n].count
		n++
	}
	out := make([]fragment.Class, n)
	for i, c := range classes[:n] {
		out[i] = fragment.Class{
			CPU: c.cpu, GPUs: c.gpus, Milli: c.milli, Models: c.models,
			Share: float64(c.count) / float64(covered),
		}
	}
	return out
}

// fragmentation returns the fragment of all nodes in percent of the capacity.
func fragmentation(b *board, classes []fragment.Class) float64 {
	lost := 0.0
	for i := range b.nodes {
		n := &b.nodes[i]
		lost += fragment.Expected(n.cpu, n.model, n.devices, classes)
	}
	return 100 * lost / float64(b.capacity)
}

// afterWhole returns the devices of n after one of s, which requests whole
// devices or none, is placed on it.
func afterWhole(n *node, s *shape, into []int) []int {
	into = append(into[:0], n.devices...)
	left := s.gpus
	for i := range into {
		if left > 0 && into[i] == trace.WholeGPU {
			into[i] = 0
			left--
		}
	}
	return into
}
