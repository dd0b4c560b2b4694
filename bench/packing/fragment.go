package packing

import (
	"cmp"
	"slices"

	"berth/bench/trace"
)

// targetShare is how much of the pods the target workload covers.
const targetShare = 0.95

// class is one class of the target workload: pods that ask for the same vCPU,
// GPUs and models. Memory plays no part.
type class struct {
	cpu         int64
	gpus, milli int
	spec        string
	models      uint64
	share       float64
}

// target returns the target workload of FGD: the most frequent classes of the
// trace until they cover 95 % of the pods, CPU-only pods among them.
func target(w *workload) []class {
	type key struct {
		cpu         int64
		gpus, milli int
		spec        string
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
			classes = append(classes, class{cpu: s.cpu, gpus: s.gpus, milli: s.milli, spec: s.spec, models: s.models})
		}
		classes[at].share++
	}
	slices.SortFunc(classes, func(a, b class) int {
		return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(b.cpu, a.cpu),
			cmp.Compare(b.milli, a.milli), cmp.Compare(b.gpus, a.gpus), cmp.Compare(b.spec, a.spec))
	})
	covered, n := 0.0, 0
	for n < len(classes) && covered < targetShare*float64(len(w.pods)) {
		covered += classes[n].share
		n++
	}
	classes = classes[:n]
	for i := range classes {
		classes[i].share /= covered
	}
	return classes
}

// fragment returns how many of the node's free thousandths of GPU a pod drawn
// from the target workload is expected to leave unusable: all of them where
// the node cannot host its class or the class wants no GPU, else those on
// devices with too little left for it.
func fragment(n *node, cpu int64, devices []int, classes []class) float64 {
	free := 0
	for _, d := range devices {
		free += d
	}
	if free == 0 {
		return 0
	}
	lost := 0.0
	for i := range classes {
		c := &classes[i]
		if c.gpus == 0 || cpu < c.cpu || n.model == noModel || c.models&(1<<n.model) == 0 {
			lost += c.share * float64(free)
			continue
		}
		short, enough := 0, 0
		for _, d := range devices {
			if d < c.milli {
				short += d
			} else {
				enough++
			}
		}
		if enough < c.gpus {
			short = free
		}
		lost += c.share * float64(short)
	}
	return lost
}

// fragmentation returns the fragment of all nodes as a share of the capacity,
// in percent.
func fragmentation(b *board, classes []class) float64 {
	lost := 0.0
	for i := range b.nodes {
		n := &b.nodes[i]
		lost += fragment(n, n.cpu, n.devices, classes)
	}
	return 100 * lost / float64(b.capacity)
}

// afterWhole returns the devices of n with one of s, which asks for whole
// devices or none, placed on it.
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
