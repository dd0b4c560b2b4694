//go:build linux && cgo

package gpu

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/compute"
)

// driverRetry is the pause between attempts to find a missing driver. A machine
// may load it after this process has started.
const driverRetry = 30 * time.Second

// nvmlSource reads the NVIDIA driver. Only Devices, which one goroutine calls
// at a time, starts and stops the library.
type nvmlSource struct {
	lib    nvml.Interface
	log    *slog.Logger
	absent slog.Level // Level of the one log line about a missing driver.
	now    func() time.Time

	running  bool // The library is initialised.
	ran      bool // It has been initialised before.
	startErr error
	retryAt  time.Time // When to retry the initialisation.
	driver   string
	events   nvml.EventSet // Nil where the driver has none.
	islands  islands       // Islands of the devices last described.

	// calls is held for reading during each call into lib. Close gives up
	// rather than unload the library during a call that hangs.
	calls sync.RWMutex

	// mu guards the fields that Devices writes and Read reads. No call into lib
	// is made under it.
	mu      sync.Mutex
	devices []compute.GPU // As last described.
	handles map[compute.GPUID]handle
	xids    map[compute.GPUID]xid
}

// handle is the driver's handle of a device.
type handle struct {
	nvml.Device
	slice bool // A MIG slice, for which the driver reports little.
}

// openNVML returns the source of the driver's devices. Without a driver it
// succeeds and has no devices.
func openNVML(c Config) Source { return newNVML(nvml.New(), c) }

func newNVML(lib nvml.Interface, c Config) *nvmlSource {
	absent := slog.LevelInfo
	if c.Source == SourceNVML {
		absent = slog.LevelWarn
	}
	return &nvmlSource{
		lib: lib, log: c.Logger, absent: absent, now: c.Now,
		handles: make(map[compute.GPUID]handle),
		xids:    make(map[compute.GPUID]xid),
	}
}

// check returns nil for SUCCESS, which is itself a non-nil error.
func check(ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	return ret
}

// Devices describes the driver's devices, the slices of a device in MIG mode
// after the device. When the driver goes away, its devices stay listed as
// failed.
func (s *nvmlSource) Devices() ([]compute.GPU, error) {
	s.calls.RLock()
	defer s.calls.RUnlock()
	if err := s.start(); err != nil {
		if !s.ran {
			return nil, nil // There never was a driver, and start has logged that.
		}
		return s.failed(), err
	}
	count, ret := s.lib.DeviceGetCount()
	if err := check(ret); err != nil {
		s.stop()
		return s.failed(), fmt.Errorf("count gpus: %w", err)
	}
	s.drainEvents()
	devices := make([]compute.GPU, 0, count)
	var silent []int
	for i := range count {
		found, err := s.describeDevice(i)
		if err != nil {
			silent = append(silent, i)
			continue
		}
		devices = append(devices, found...)
	}
	s.assignIslands(devices)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.devices = s.addLost(devices, silent)
	return slices.Clone(s.devices), nil
}

// addLost adds the devices that do not answer, as last described, but failed. A
// device that has never answered is left out. The caller holds the lock.
func (s *nvmlSource) addLost(devices []compute.GPU, indexes []int) []compute.GPU {
	for _, g := range s.devices {
		_, moved := find(devices, g.ID)
		if slices.Contains(indexes, g.Index) && !moved {
			g.Health = compute.HealthFailed
			devices = append(devices, g)
		}
	}
	slices.SortStableFunc(devices, func(a, b compute.GPU) int { return cmp.Compare(a.Index, b.Index) })
	return devices
}

// start initialises the library if needed, and logs once when it cannot.
func (s *nvmlSource) start() error {
	if s.running {
		return nil
	}
	if s.now().Before(s.retryAt) {
		return s.startErr
	}
	if err := check(s.lib.Init()); err != nil {
		if s.startErr == nil {
			s.log.Log(context.Background(), s.absent, "no gpu driver, this node offers no gpus", "err", err)
		}
		s.startErr = fmt.Errorf("start gpu driver: %w", err)
		s.retryAt = s.now().Add(driverRetry)
		return s.startErr
	}
	s.running, s.ran, s.startErr = true, true, nil
	if version, ret := s.lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		s.driver = version
	}
	if set, ret := s.lib.EventSetCreate(); ret == nvml.SUCCESS {
		s.events = set
	}
	return nil
}

// stop unloads a library that no longer answers, so that start may load the
// driver's next version.
func (s *nvmlSource) stop() {
	if s.events != nil {
		_ = s.events.Free()
		s.events = nil
	}
	_ = s.lib.Shutdown() // The next Init reports the error.
	s.running = false
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.handles)
}

// failed returns the devices as last described, marked as failed.
func (s *nvmlSource) failed() []compute.GPU {
	s.mu.Lock()
	defer s.mu.Unlock()
	return failed(s.devices)
}

// describeDevice describes the device at the index, its slices, and their
// health.
func (s *nvmlSource) describeDevice(index int) ([]compute.GPU, error) {
	found, ret := s.lib.DeviceGetHandleByIndex(index)
	if err := check(ret); err != nil {
		return nil, fmt.Errorf("find gpu: %w", err)
	}
	device, err := s.describe(found)
	if err != nil {
		return nil, err
	}
	device.Index = index
	s.keep(device.ID, found)
	if s.unhealthy(device.ID, found) {
		device.Health = compute.HealthFailed
	}
	devices := []compute.GPU{device}
	if device.Sliced() {
		devices = append(devices, s.findSlices(device, found)...)
	}
	return devices, nil
}

// keep stores the handle for Read, and registers for the events of a new
// device.
func (s *nvmlSource) keep(id compute.GPUID, device nvml.Device) {
	s.mu.Lock()
	_, known := s.handles[id]
	s.handles[id] = handle{Device: device}
	s.mu.Unlock()
	if !known && s.events != nil {
		// A device without events is watched by its counters alone.
		_ = device.RegisterEvents(nvml.EventTypeXidCriticalError, s.events)
	}
}

// describe reads the properties of a device.
func (s *nvmlSource) describe(handle nvml.Device) (compute.GPU, error) {
	uuid, ret := handle.GetUUID()
	if err := check(ret); err != nil {
		return compute.GPU{}, fmt.Errorf("gpu uuid: %w", err)
	}
	model, ret := handle.GetName()
	if err := check(ret); err != nil {
		return compute.GPU{}, fmt.Errorf("gpu name: %w", err)
	}
	memory, ret := handle.GetMemoryInfo()
	if err := check(ret); err != nil {
		return compute.GPU{}, fmt.Errorf("gpu memory: %w", err)
	}
	device := compute.GPU{
		ID: compute.GPUID(uuid), Type: TypeOf(model), Model: model,
		VRAMMiB: int64(memory.Total >> 20), Driver: s.driver,
	}
	if major, minor, ret := handle.GetCudaComputeCapability(); ret == nvml.SUCCESS {
		device.Capability = 10*major + minor
	} else if k, known := kindOf(device.Type); known {
		device.Capability = k.capability
	}
	if pci, ret := handle.GetPciInfo(); ret == nvml.SUCCESS {
		device.PCIBus = textOf(pci.BusId[:])
	}
	if mode, _, ret := handle.GetMigMode(); ret == nvml.SUCCESS {
		device.MIG = compute.MIGDisabled
		if mode == nvml.DEVICE_MIG_ENABLE {
			device.MIG = compute.MIGEnabled
		}
	}
	return device, nil
}

// textOf returns a text of C.
func textOf(chars []int8) string {
	var out []byte
	for _, c := range chars {
		if c == 0 {
			break
		}
		out = append(out, byte(c))
	}
	return string(out)
}

// Close shuts the library down, unless a call into it hangs. Then only the end
// of the process unloads it.
func (s *nvmlSource) Close() error {
	if !s.calls.TryLock() {
		return nil
	}
	defer s.calls.Unlock()
	if s.running {
		s.stop()
	}
	return nil
}
