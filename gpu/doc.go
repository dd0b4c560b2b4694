// Package gpu knows the devices of this node: what they are, whether they are
// well, and what they do now.
//
// A Source is where devices come from: the NVIDIA driver (NVML), a file that
// lists them, or a simulation. The Watcher turns a source into the inventory
// that the node reports, the Sampler keeps the newest readings, and the
// Collector shows both to Prometheus under the names of NVIDIA's DCGM
// exporter, so that existing boards work unchanged.
//
// It does not know which execution holds a device, and places nothing: that
// is the state's and the scheduler's. Nothing here reaches another node.
//
// Rules: nobody but the watcher and the sampler talks to a driver, and neither
// lets a driver that hangs hold up a caller. A value that a device does not
// report is negative and is left out of the metrics. Whatever is simulated
// says so in its model name.
package gpu
