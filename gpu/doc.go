// Package gpu reports the devices of this node: their types, their health and
// their load.
//
// A Source lists devices: the NVIDIA driver (NVML), a file, or a simulation.
// The Watcher turns a source into the inventory that the node reports. The
// Sampler keeps the newest readings. The Collector exports both to Prometheus
// under the names of NVIDIA's DCGM exporter, so that existing dashboards work
// unchanged.
//
// It is not for placement: it does not know which execution holds a device,
// and reaches no other node.
//
// Rules: only the watcher and the sampler call a driver, and a driver that
// hangs never blocks their callers. A value that a device does not report is
// negative and is left out of the metrics. The model name of a simulated device
// says that it is simulated.
package gpu
