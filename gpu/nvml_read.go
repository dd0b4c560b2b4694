//go:build linux && cgo

package gpu

import (
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/compute"
)

// Read reads each value of the device. Values that it does not support stay
// negative. For a MIG slice only the memory is supported. Read fails only for a
// device that answers nothing at all.
func (s *nvmlSource) Read(id compute.GPUID) (Reading, error) {
	s.calls.RLock()
	defer s.calls.RUnlock()
	s.mu.Lock()
	device, ok := s.handles[id]
	last := s.xids[id]
	s.mu.Unlock()
	if !ok {
		return Reading{}, fmt.Errorf("read %s: %w", id, errNoDevice)
	}
	r := unread(id, compute.InstantOf(s.now()))
	r.XIDErrors = last.code
	if err := check(readMemory(device, &r)); err != nil {
		return Reading{}, fmt.Errorf("read %s: %w", id, err)
	}
	if device.slice {
		return r, nil
	}
	readUse(device, &r)
	readPower(device, &r)
	readFaults(device, &r)
	return r, nil
}

// readMemory reads the second version of the call, which separates the memory
// that executions use from the memory that the driver reserves.
func readMemory(handle nvml.Device, r *Reading) nvml.Return {
	memory, ret := handle.GetMemoryInfo_v2()
	if ret != nvml.SUCCESS {
		return readOldMemory(handle, r)
	}
	r.UsedMiB, r.FreeMiB = int64(memory.Used>>20), int64(memory.Free>>20)
	r.ReservedMiB = int64(memory.Reserved >> 20)
	return ret
}

// readOldMemory reads the first version, for drivers that know no other.
func readOldMemory(handle nvml.Device, r *Reading) nvml.Return {
	memory, ret := handle.GetMemoryInfo()
	if ret == nvml.SUCCESS {
		r.UsedMiB, r.FreeMiB = int64(memory.Used>>20), int64(memory.Free>>20)
	}
	return ret
}

// readUse reads the utilization of the device.
func readUse(handle nvml.Device, r *Reading) {
	if use, ret := handle.GetUtilizationRates(); ret == nvml.SUCCESS {
		r.UtilPercent, r.MemUtilPercent = float64(use.Gpu), float64(use.Memory)
	}
	if percent, _, ret := handle.GetEncoderUtilization(); ret == nvml.SUCCESS {
		r.EncoderPercent = float64(percent)
	}
	if percent, _, ret := handle.GetDecoderUtilization(); ret == nvml.SUCCESS {
		r.DecoderPercent = float64(percent)
	}
	if mhz, ret := handle.GetClockInfo(nvml.CLOCK_SM); ret == nvml.SUCCESS {
		r.SMClockMHz = float64(mhz)
	}
	if mhz, ret := handle.GetClockInfo(nvml.CLOCK_MEM); ret == nvml.SUCCESS {
		r.MemClockMHz = float64(mhz)
	}
	// The driver measures for 20 ms and answers in KB/s.
	if kb, ret := handle.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES); ret == nvml.SUCCESS {
		r.PCIeRxBytesPerS = float64(kb) * 1000
	}
	if kb, ret := handle.GetPcieThroughput(nvml.PCIE_UTIL_TX_BYTES); ret == nvml.SUCCESS {
		r.PCIeTxBytesPerS = float64(kb) * 1000
	}
}

// readPower reads watts, joules and degrees.
func readPower(handle nvml.Device, r *Reading) {
	if mw, ret := handle.GetPowerUsage(); ret == nvml.SUCCESS {
		r.PowerWatt = float64(mw) / 1000
	}
	if mw, ret := handle.GetEnforcedPowerLimit(); ret == nvml.SUCCESS {
		r.PowerLimitWatt = float64(mw) / 1000
	}
	if mj, ret := handle.GetTotalEnergyConsumption(); ret == nvml.SUCCESS {
		r.EnergyMilliJ = int64(mj)
	}
	if celsius, ret := handle.GetTemperature(nvml.TEMPERATURE_GPU); ret == nvml.SUCCESS {
		r.TemperatureC = float64(celsius)
	}
	field := []nvml.FieldValue{{FieldId: nvml.FI_DEV_MEMORY_TEMP}}
	if ret := handle.GetFieldValues(field); ret == nvml.SUCCESS && field[0].NvmlReturn == uint32(nvml.SUCCESS) {
		r.MemoryTemperatureC = float64(binary.LittleEndian.Uint32(field[0].Value[:4]))
	}
}

// readFaults reads the error counters.
func readFaults(handle nvml.Device, r *Reading) {
	if replays, ret := handle.GetPcieReplayCounter(); ret == nvml.SUCCESS {
		r.PCIeReplays = int64(replays)
	}
	if correctable, uncorrectable, _, failure, ret := handle.GetRemappedRows(); ret == nvml.SUCCESS {
		r.CorrectableRemaps, r.UncorrectableRemaps = int64(correctable), int64(uncorrectable)
		r.RemapFailure = 0
		if failure {
			r.RemapFailure = 1
		}
	}
}
