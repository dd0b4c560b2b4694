package gpu

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
)

// CollectorConfig configures a collector.
type CollectorConfig struct {
	Hostname string               // The node's name.
	Devices  func() []compute.GPU // The inventory.

	// Last returns the newest reading of a device.
	Last func(compute.GPUID) (Reading, bool)

	// Allocated returns how many thousandths of a device attempts hold.
	Allocated func(compute.GPUID) int

	// Holders returns the shares of this node's devices that attempts hold; nil for none.
	Holders func() []Holder
}

// Holder is an attempt's share of a device.
type Holder struct {
	GPU   compute.GPUID
	Milli int // Thousandths.
	Org   compute.OrgID
	Kind  compute.Kind
}

// Collector exports the last readings to Prometheus, under the names, labels
// and units of NVIDIA's DCGM exporter (%, W, mJ, C, MHz, MiB; not base units).
// It exports the allocation under a name of our own. It never calls a driver.
//
// It is unchecked, because a series has two more labels on a MIG slice than on
// a device. So it must be registered only once.
type Collector struct {
	cfg       CollectorConfig
	series    []series
	slices    []series // Series of MIG slices, with two more labels.
	allocated *prometheus.Desc
	holders   *prometheus.Desc
}

// series is one metric of devices.
type series struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*Reading) float64 // Negative for unknown.
}

// NewCollector returns a collector of the devices of this node.
func NewCollector(cfg CollectorConfig) *Collector {
	return &Collector{
		cfg:    cfg,
		series: deviceSeries(),
		slices: sliceSeries(),
		allocated: prometheus.NewDesc("berth_gpu_allocated_milli",
			"Thousandths of the GPU that are given to attempts.", []string{"gpu", "model"}, nil),
		holders: prometheus.NewDesc("berth_gpu_holder_info",
			"Share of the GPU that is held, by organization and kind of execution.",
			[]string{"UUID", "Hostname", "GPU_I_ID", "org", "kind"}, nil),
	}
}

// Describe sends nothing: the collector is unchecked.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the last readings. A GPU instance is sent once, however many
// compute instances share its memory.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	devices := c.cfg.Devices()
	type place struct {
		parent   compute.GPUID
		instance int
	}
	shown := make(map[place]bool)
	for _, g := range devices {
		out <- prometheus.MustNewConstMetric(c.allocated, prometheus.GaugeValue,
			float64(c.cfg.Allocated(g.ID)), string(g.ID), g.Model)
		r, ok := c.cfg.Last(g.ID)
		if !ok {
			continue
		}
		parent, isSlice := find(devices, g.Parent)
		if !isSlice {
			collect(out, c.series, c.labels(g), &r)
			continue
		}
		if at := (place{g.Parent, g.Instance}); !shown[at] {
			shown[at] = true
			labels := append(c.labels(parent), instanceProfile(g.MIG), strconv.Itoa(g.Instance))
			collect(out, c.slices, labels, &r)
		}
	}
	c.collectHolders(out, devices)
}

// held names a series of holders.
type held struct{ uuid, instance, org, kind string }

// collectHolders sends the share of each holder. No label has an execution: executions
// come and go, and each would be a series for ever.
func (c *Collector) collectHolders(out chan<- prometheus.Metric, devices []compute.GPU) {
	if c.cfg.Holders == nil {
		return
	}
	parts := make(map[held]int)
	for _, h := range c.cfg.Holders() {
		device, ok := find(devices, h.GPU)
		if !ok {
			continue
		}
		key := held{uuid: string(h.GPU), org: h.Org.String(), kind: h.Kind.String()}
		if parent, isSlice := find(devices, device.Parent); isSlice {
			key.uuid, key.instance = string(parent.ID), strconv.Itoa(device.Instance)
		}
		parts[key] += h.Milli
	}
	for key, milli := range parts {
		out <- prometheus.MustNewConstMetric(c.holders, prometheus.GaugeValue, float64(milli)/compute.WholeGPU,
			key.uuid, c.cfg.Hostname, key.instance, key.org, key.kind)
	}
}

// collect sends the values of one reading for some series.
func collect(out chan<- prometheus.Metric, all []series, labels []string, r *Reading) {
	for _, s := range all {
		if v := s.value(r); v >= 0 {
			out <- prometheus.MustNewConstMetric(s.desc, s.kind, v, labels...)
		}
	}
}

// instanceProfile returns the driver's name of the GPU instance that the slice
// is or belongs to: "2g.10gb" for "1c_2g_10gb".
func instanceProfile(slice string) string {
	profile := compute.MIGProfile(slice)
	if units, instance, found := strings.Cut(profile, "c."); found && isDigits(units) {
		return instance
	}
	return profile
}

// deviceLabels returns the label names of a device's series.
func deviceLabels() []string {
	return []string{
		"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION",
	}
}

// labels returns the values of deviceLabels.
func (c *Collector) labels(g compute.GPU) []string {
	index, device := strconv.Itoa(g.Index), "nvidia"
	if g.Simulated {
		device = "sim"
	}
	return []string{
		index, string(g.ID), g.PCIBus, device + index, g.Model, c.cfg.Hostname, g.Driver,
	}
}

// gauge returns a series of type gauge.
func gauge(name, help string, value func(*Reading) float64) series {
	return series{prometheus.NewDesc(name, help, deviceLabels(), nil), prometheus.GaugeValue, value}
}

// counter returns a series of type counter.
func counter(name, help string, value func(*Reading) int64) series {
	return series{
		desc:  prometheus.NewDesc(name, help, deviceLabels(), nil),
		kind:  prometheus.CounterValue,
		value: func(r *Reading) float64 { return float64(value(r)) },
	}
}

const (
	helpUsed     = "Framebuffer memory used (in MiB)."
	helpFree     = "Framebuffer memory free (in MiB)."
	helpReserved = "Framebuffer memory reserved (in MiB)."
)

// deviceSeries returns the series of a device.
func deviceSeries() []series {
	return []series{
		gauge("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).",
			func(r *Reading) float64 { return r.SMClockMHz }),
		gauge("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).",
			func(r *Reading) float64 { return r.MemClockMHz }),
		gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).",
			func(r *Reading) float64 { return r.TemperatureC }),
		gauge("DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C).",
			func(r *Reading) float64 { return r.MemoryTemperatureC }),
		gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).",
			func(r *Reading) float64 { return r.PowerWatt }),
		gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT", "Power limit (in W).",
			func(r *Reading) float64 { return r.PowerLimitWatt }),
		counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).",
			func(r *Reading) int64 { return r.EnergyMilliJ }),
		gauge("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).",
			func(r *Reading) float64 { return r.UtilPercent }),
		gauge("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).",
			func(r *Reading) float64 { return r.MemUtilPercent }),
		gauge("DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %).",
			func(r *Reading) float64 { return r.EncoderPercent }),
		gauge("DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %).",
			func(r *Reading) float64 { return r.DecoderPercent }),
		gauge("DCGM_FI_DEV_FB_FREE", helpFree,
			func(r *Reading) float64 { return float64(r.FreeMiB) }),
		gauge("DCGM_FI_DEV_FB_USED", helpUsed,
			func(r *Reading) float64 { return float64(r.UsedMiB) }),
		gauge("DCGM_FI_DEV_FB_RESERVED", helpReserved,
			func(r *Reading) float64 { return float64(r.ReservedMiB) }),
		gauge("DCGM_FI_PROF_PCIE_TX_BYTES", "Rate of data sent over the PCIe bus (in bytes per second).",
			func(r *Reading) float64 { return r.PCIeTxBytesPerS }),
		gauge("DCGM_FI_PROF_PCIE_RX_BYTES", "Rate of data received over the PCIe bus (in bytes per second).",
			func(r *Reading) float64 { return r.PCIeRxBytesPerS }),
		counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.",
			func(r *Reading) int64 { return r.PCIeReplays }),
		gauge("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.",
			func(r *Reading) float64 { return float64(r.XIDErrors) }),
		counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for uncorrectable errors.",
			func(r *Reading) int64 { return r.UncorrectableRemaps }),
		counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for correctable errors.",
			func(r *Reading) int64 { return r.CorrectableRemaps }),
		gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed.",
			func(r *Reading) float64 { return float64(r.RemapFailure) }),
	}
}

// sliceSeries returns the series of a MIG slice, with its device's labels and
// two of its own. Drivers report no utilization of a slice. The activity of its
// engines replaces it where known.
func sliceSeries() []series {
	labels := append(deviceLabels(), "GPU_I_PROFILE", "GPU_I_ID")
	gauge := func(name, help string, value func(*Reading) float64) series {
		return series{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue, value}
	}
	return []series{
		gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.",
			func(r *Reading) float64 { return r.UtilPercent / 100 }),
		gauge("DCGM_FI_DEV_FB_FREE", helpFree, func(r *Reading) float64 { return float64(r.FreeMiB) }),
		gauge("DCGM_FI_DEV_FB_USED", helpUsed, func(r *Reading) float64 { return float64(r.UsedMiB) }),
		gauge("DCGM_FI_DEV_FB_RESERVED", helpReserved, func(r *Reading) float64 { return float64(r.ReservedMiB) }),
	}
}
