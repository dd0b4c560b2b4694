package packing

import (
	"math/rand" //nolint:depguard // The artifact's generator, because its sequence for a seed is needed.
	"slices"
	"strings"
)

// informers is how many random numbers the artifact consumes between the pods
// and the nodes, where it starts the informers of Kubernetes. With ten of them
// the published policies give the published figures.
const informers = 10

// sorted returns indexes sorted by name.
func sorted[T any](of []T, name func(*T) string) []int {
	out := make([]int, len(of))
	for i := range out {
		out[i] = i
	}
	slices.SortFunc(out, func(a, b int) int { return strings.Compare(name(&of[a]), name(&of[b])) })
	return out
}

// drawn returns the order of the nodes and the arriving shapes as the artifact
// of the published comparison drew them for a seed. It draws the shuffle of the
// pods, then the added or removed pods, then the order of nodes.
func (w *workload) drawn(seed uint64, multiple float64) (order, arrivals []int) {
	random := rand.New(rand.NewSource(int64(seed)))
	random.Int() // The artifact prints one.
	pods := slices.Clone(w.podsByName)
	random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	pods = w.tuned(random, pods, multiple*float64(w.capacity))
	for range informers {
		random.Int()
	}
	order = make([]int, len(w.nodes))
	for i, at := range random.Perm(len(w.nodes)) {
		order[at] = w.nodesByName[i]
	}
	for _, pod := range pods {
		arrivals = append(arrivals, w.pods[pod])
	}
	return order, arrivals
}

// tuned adds drawn pods while the demand stays within the goal, or removes pods
// until it does.
func (w *workload) tuned(random *rand.Rand, pods []int, goal float64) []int {
	demand := w.demand
	of := func(pod int) *shape { return &w.shapes[w.pods[pod]] }
	if float64(demand) > goal {
		for float64(demand) > goal {
			i := random.Intn(len(pods))
			demand -= of(pods[i]).demand()
			pods = slices.Delete(pods, i, i+1)
		}
		return pods
	}
	for {
		pod := w.podsByName[random.Intn(len(w.podsByName))]
		if float64(demand+int64(of(pod).milli)) > goal { // The artifact counts one device, however many the pod requests.
			return pods
		}
		demand += of(pod).demand()
		pods = append(pods, pod)
	}
}
