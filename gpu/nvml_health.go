//go:build linux && cgo

package gpu

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/compute"
)

// xidRest is how long a device stays failed after a fatal XID. If it answers
// and reports no other by then, it has been reset.
const xidRest = 10 * time.Minute

// maxEvents is the most events that one poll takes from the driver.
const maxEvents = 256

// xid is the last critical error that a device reported.
type xid struct {
	code    int64
	fatalAt time.Time // When the last fatal one was reported; zero for none.
}

// isFatal reports whether a device with the XID needs a reset. By NVIDIA's
// table the other XIDs are faults of the program that used the device.
func isFatal(code int64) bool {
	switch code {
	case 8, // A channel timed out.
		13,  // Graphics engine exception.
		31,  // Memory page fault.
		43,  // The program was stopped.
		45,  // Clean-up after a program.
		68,  // Video processor exception.
		69,  // Graphics engine class error.
		94,  // Memory error contained to the program.
		109: // Context switch timed out.
		return false
	}
	return true
}

// drainEvents takes the critical errors since the last poll.
func (s *nvmlSource) drainEvents() {
	if s.events == nil {
		return
	}
	for range maxEvents {
		event, ret := s.events.Wait(0)
		if ret != nvml.SUCCESS {
			return
		}
		uuid, ret := event.Device.GetUUID()
		if ret != nvml.SUCCESS || event.EventType != nvml.EventTypeXidCriticalError {
			continue
		}
		s.recordXID(compute.GPUID(uuid), int64(event.EventData))
	}
}

// recordXID records the critical error.
func (s *nvmlSource) recordXID(id compute.GPUID, code int64) {
	s.mu.Lock()
	last := s.xids[id]
	last.code = code
	if isFatal(code) {
		last.fatalAt = s.now()
	}
	s.xids[id] = last
	s.mu.Unlock()
	s.log.Warn("gpu reported a critical error", "gpu", id, "code", code)
}

// unhealthy reports whether the device must not get new work: after a fatal
// XID, or while its memory has faults that need a reset.
func (s *nvmlSource) unhealthy(id compute.GPUID, handle nvml.Device) bool {
	s.mu.Lock()
	fatalAt := s.xids[id].fatalAt
	s.mu.Unlock()
	if !fatalAt.IsZero() && s.now().Sub(fatalAt) < xidRest {
		return true
	}
	_, _, pending, failure, ret := handle.GetRemappedRows()
	if ret == nvml.SUCCESS {
		return pending || failure
	}
	return ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_RESET_REQUIRED || needsReset(handle)
}

// needsReset checks a device without row remapping. It needs a reset if it has
// uncorrected errors since the last one, or pages to retire.
func needsReset(handle nvml.Device) bool {
	pending, ret := handle.GetRetiredPagesPendingStatus()
	if ret == nvml.SUCCESS && pending == nvml.FEATURE_ENABLED {
		return true
	}
	faults, ret := handle.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	return ret == nvml.SUCCESS && faults > 0
}
