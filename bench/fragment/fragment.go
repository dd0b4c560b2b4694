// Package fragment measures how much of a node's free GPUs the typical workload
// could not use: the fragment of Weng et al., "Beware of Fragmentation:
// Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX
// ATC 2023).
//
// It is a metric without a policy. A policy based on it adds its own rounding
// and caching.
package fragment

// NoModel is the model of a node without GPUs.
const NoModel = -1

// Class is one class of the typical workload, and its frequency.
type Class struct {
	CPU    int64   // Thousandths of a vCPU.
	GPUs   int     // Devices.
	Milli  int     // Thousandths of each.
	Models uint64  // A bit for each acceptable model.
	Share  float64 // Share of all work; the shares of all classes add up to 1.
}

// Expected returns the expected thousandths of a node's GPUs that a draw from the
// classes cannot use. The node has cpu free thousandths of a vCPU, and devices
// holds the free thousandths of each device. If the node cannot host the class,
// or the class requests no GPU, all free capacity is lost. Otherwise the
// capacity on devices with too little left for the class is lost.
func Expected(cpu int64, model int, devices []int, classes []Class) float64 {
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
