package gpu

import (
	"slices"

	"berth/compute"
)

// Reading is one reading of one device: the sample that other packages use, and
// the values that only the DCGM series show. A value that the device does not
// report is negative.
type Reading struct {
	compute.GPUSample
	MemoryTemperatureC  float64
	EncoderPercent      float64
	DecoderPercent      float64
	ReservedMiB         int64 // Reserved by the driver.
	PCIeReplays         int64 // A counter.
	CorrectableRemaps   int64 // Memory rows; a counter.
	UncorrectableRemaps int64 // Memory rows; a counter.
	RemapFailure        int64 // 1 when a row could not be remapped.
}

// unread returns a reading without any value.
func unread(id compute.GPUID, at compute.Instant) Reading {
	return Reading{
		GPUSample: compute.GPUSample{
			GPU: id, At: at,
			UtilPercent: -1, MemUtilPercent: -1, UsedMiB: -1, FreeMiB: -1,
			TemperatureC: -1, PowerWatt: -1, PowerLimitWatt: -1, EnergyMilliJ: -1,
			SMClockMHz: -1, MemClockMHz: -1, PCIeRxBytesPerS: -1, PCIeTxBytesPerS: -1,
		},
		MemoryTemperatureC: -1, EncoderPercent: -1, DecoderPercent: -1,
		ReservedMiB: -1, PCIeReplays: -1, CorrectableRemaps: -1,
		UncorrectableRemaps: -1, RemapFailure: -1,
	}
}

// find returns the device with the id.
func find(devices []compute.GPU, id compute.GPUID) (compute.GPU, bool) {
	i := slices.IndexFunc(devices, func(g compute.GPU) bool { return g.ID == id })
	if i < 0 {
		return compute.GPU{}, false
	}
	return devices[i], true
}
