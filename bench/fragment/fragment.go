// Package fragment measures how much of the free GPUs of a node the work that
// usually comes could not use: the fragment of Weng et al., "Beware of
// Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
// Descent" (USENIX ATC 2023).
//
// It is a measure and knows no policy: one that places by it brings its own
// rounding and its own memory.
package fragment

// NoModel is the model of a node without GPUs.
const NoModel = -1

// Class is one class of the work that usually comes, and how often it does.
type Class struct {
	CPU    int64   // Thousandths of a vCPU.
	GPUs   int     // Devices.
	Milli  int     // Thousandths of each.
	Models uint64  // A bit for each model that will do.
	Share  float64 // Of all work; the shares of all classes are 1 together.
}

// Of returns how many thousandths of GPU of a node a draw from the classes is
// expected to leave unusable. The node has cpu thousandths of a vCPU free, and
// on each device as many thousandths as devices says. All that is free is lost
// where the node cannot host the class, or the class wants no GPU; else what is
// on devices with too little left for it.
func Of(cpu int64, model int, devices []int, classes []Class) float64 {
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
		if c.GPUs == 0 || cpu < c.CPU || model == NoModel || c.Models&(1<<model) == 0 {
			lost += c.Share * float64(free)
			continue
		}
		short, enough := 0, 0
		for _, d := range devices {
			if d < c.Milli {
				short += d
			} else {
				enough++
			}
		}
		if enough < c.GPUs {
			short = free
		}
		lost += c.Share * float64(short)
	}
	return lost
}
