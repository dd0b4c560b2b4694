//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// MetricsQuery are the parameters of GET /execution/{id}/metrics.
type MetricsQuery struct {
	Start compute.Instant `json:"start" doc:"RFC 3339; the start of the execution when absent."`
	End   compute.Instant `json:"end" doc:"RFC 3339; its end, or now, when absent."`
	Step  string          `json:"step" default:"\"15s\"" maxlen:"16" doc:"The time that a point stands for: 15s, 5m, or a number of seconds; at least 1s, and at most 5000 points an answer."`
}

// ExecutionMetrics answers GET /execution/{id}/metrics: for each metric the means over
// the steps in which it was measured, of its GPUs together. An execution without GPUs
// has empty arrays of GPU metrics, and simulated devices have no PCIe counters.
type ExecutionMetrics struct {
	ExecutionID compute.ExecutionID `json:"executionId"`
	Hostname    string              `json:"hostname" doc:"The node of the newest attempt; empty before the first."`
	TimeRange   TimeRange           `json:"timeRange"`
	Simulated   bool                `json:"simulated" doc:"The GPUs are simulated."`
	Warnings    []string            `json:"warnings" doc:"Why points may be missing; empty otherwise."`

	GPUUtilization       []MetricPoint `json:"gpuUtilizationPercent" doc:"Mean of the GPUs."`
	GPUMemoryUtilization []MetricPoint `json:"gpuMemoryUtilizationPercent" doc:"Used part of the memory of the GPUs together."`
	GPUTemperature       []MetricPoint `json:"gpuTemperatureCelsius" doc:"Temperature of the hottest GPU."`
	GPUPower             []MetricPoint `json:"gpuPowerWatt" doc:"Sum; of a shared GPU, the part that the execution holds."`
	GPUPowerLimit        []MetricPoint `json:"gpuPowerLimitWatt" doc:"The same."`
	GPUClockSM           []MetricPoint `json:"gpuClockSmMhz" doc:"Mean of the GPUs."`
	GPUClockMemory       []MetricPoint `json:"gpuClockMemMhz" doc:"Mean of the GPUs."`
	PCIeReceive          []MetricPoint `json:"gpuPcieThroughputRxBytesPerSec" doc:"Sum of the GPUs."`
	PCIeTransmit         []MetricPoint `json:"gpuPcieThroughputTxBytesPerSec" doc:"Sum of the GPUs."`
	MemoryTotal          []MetricPoint `json:"systemRamTotalBytes" doc:"The memory limit of the execution."`
	MemoryUsed           []MetricPoint `json:"systemRamUsedBytes" doc:"The memory that it uses, with its files in memory."`
	CPUUsage             []MetricPoint `json:"systemCpuUsagePercent" doc:"Share of the processors that its hardware profile gives; an idle machine lends more."`
}

// TimeRange is the time that an answer covers.
type TimeRange struct {
	Start compute.Instant `json:"start"`
	End   compute.Instant `json:"end"`
}

// MetricPoint is the value of a metric in the step that ends at an instant.
type MetricPoint struct {
	Timestamp compute.Instant `json:"timestamp"`
	Value     float64         `json:"value"`
}
