//go:build linux && cgo

package gpu

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"berth/compute"
)

// box is a machine with eight mocked A100, a log and a clock.
type box struct {
	*dgxa100.Server
	source *nvmlSource
	log    bytes.Buffer
	now    time.Time
	events []nvml.EventData
	inits  int
}

func newBox(t *testing.T) *box {
	b := &box{Server: dgxa100.New(), now: time.UnixMilli(1_000_000)}
	b.InitFunc = func() nvml.Return { b.inits++; return nvml.SUCCESS }
	b.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{WaitFunc: b.wait, FreeFunc: func() nvml.Return { return nvml.SUCCESS }}, nvml.SUCCESS
	}
	for i := range b.Devices {
		equip(b.device(i), i)
	}
	b.source = newNVML(b, Config{
		Source: SourceNVML, Now: func() time.Time { return b.now },
		Logger: slog.New(slog.NewTextHandler(&b.log, nil)),
	})
	t.Cleanup(func() {
		if err := b.source.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *box) device(i int) *dgxa100.Device { return b.Devices[i].(*dgxa100.Device) }

// wait hands out the events that the test has laid out.
func (b *box) wait(uint32) (nvml.EventData, nvml.Return) {
	if len(b.events) == 0 {
		return nvml.EventData{}, nvml.ERROR_TIMEOUT
	}
	event := b.events[0]
	b.events = b.events[1:]
	return event, nvml.SUCCESS
}

// strike lays out an XID of the device.
func (b *box) strike(i int, code uint64) {
	b.events = append(b.events, nvml.EventData{
		Device: b.Devices[i], EventType: nvml.EventTypeXidCriticalError, EventData: code,
	})
}

func (b *box) mustDevices(t *testing.T) []compute.GPU {
	t.Helper()
	devices, err := b.source.Devices()
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

// equip gives a mocked device the answers that dgxa100 leaves out.
func equip(d *dgxa100.Device, i int) {
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
		var pci nvml.PciInfo
		for at, c := range []byte(fmt.Sprintf("00000000:%02X:00.0", i+1)) {
			pci.BusId[at] = int8(c)
		}
		return pci, nvml.SUCCESS
	}
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS }
	d.GetP2PStatusFunc = func(nvml.Device, nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
		return nvml.P2P_STATUS_UNKNOWN, nvml.ERROR_NOT_SUPPORTED
	}
	d.GetTopologyCommonAncestorFunc = func(nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
		return nvml.TOPOLOGY_SYSTEM, nvml.ERROR_NOT_SUPPORTED
	}
	d.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 3, 1, false, false, nvml.SUCCESS }
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: 40 << 30, Reserved: 1 << 30, Used: 4 << 30, Free: 35 << 30}, nvml.SUCCESS
	}
	d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
		return nvml.Utilization{Gpu: 87, Memory: 40}, nvml.SUCCESS
	}
	d.GetEncoderUtilizationFunc = func() (uint32, uint32, nvml.Return) { return 1, 0, nvml.SUCCESS }
	d.GetDecoderUtilizationFunc = func() (uint32, uint32, nvml.Return) { return 0, 0, nvml.ERROR_NOT_SUPPORTED }
	d.GetClockInfoFunc = func(c nvml.ClockType) (uint32, nvml.Return) { return 1000 + uint32(c), nvml.SUCCESS }
	d.GetPcieThroughputFunc = func(c nvml.PcieUtilCounter) (uint32, nvml.Return) { return 50 + uint32(c), nvml.SUCCESS }
	d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 312_500, nvml.SUCCESS }
	d.GetEnforcedPowerLimitFunc = func() (uint32, nvml.Return) { return 400_000, nvml.SUCCESS }
	d.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { return 123_456, nvml.SUCCESS }
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 61, nvml.SUCCESS }
	d.GetPcieReplayCounterFunc = func() (int, nvml.Return) { return 2, nvml.SUCCESS }
	d.GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
		binary.LittleEndian.PutUint32(values[0].Value[:], 74)
		return nvml.SUCCESS
	}
}

func TestNVMLDescribes(t *testing.T) {
	b := newBox(t)
	b.device(1).MigMode = nvml.DEVICE_MIG_ENABLE
	devices := b.mustDevices(t)
	if len(devices) != 8 {
		t.Fatalf("got %d devices", len(devices))
	}
	want := compute.GPU{
		ID: compute.GPUID(b.device(1).UUID), Index: 1, Type: "a100", Model: "Mock NVIDIA A100-SXM4-40GB",
		VRAMMiB: 40 << 10, PCIBus: "00000000:02:00.0", MIG: "enabled", Driver: "550.54.15", Capability: 80,
	}
	if devices[1] != want {
		t.Errorf("got  %+v\nwant %+v", devices[1], want)
	}
	if devices[0].MIG != "disabled" {
		t.Errorf("mig of the first: %q", devices[0].MIG)
	}
	if again := b.mustDevices(t); len(again) != 8 || b.inits != 1 {
		t.Errorf("%d devices, initialised %d times", len(again), b.inits)
	}
}

func TestNVMLReads(t *testing.T) {
	b := newBox(t)
	id := b.mustDevices(t)[0].ID
	b.strike(0, 31)
	b.mustDevices(t)
	r, err := b.source.Read(id)
	if err != nil {
		t.Fatal(err)
	}
	want := Reading{
		GPUSample: compute.GPUSample{
			GPU: id, At: compute.InstantOf(b.now),
			UtilPercent: 87, MemUtilPercent: 40, UsedMiB: 4096, FreeMiB: 35 << 10,
			TemperatureC: 61, PowerWatt: 312.5, PowerLimitWatt: 400, EnergyMilliJ: 123_456,
			SMClockMHz: 1000 + float64(nvml.CLOCK_SM), MemClockMHz: 1000 + float64(nvml.CLOCK_MEM),
			PCIeRxBytesPerS: 1000 * (50 + float64(nvml.PCIE_UTIL_RX_BYTES)),
			PCIeTxBytesPerS: 1000 * (50 + float64(nvml.PCIE_UTIL_TX_BYTES)),
			XIDErrors:       31,
		},
		MemoryTemperatureC: 74, EncoderPercent: 1, DecoderPercent: -1, ReservedMiB: 1024,
		PCIeReplays: 2, CorrectableRemaps: 3, UncorrectableRemaps: 1, RemapFailure: 0,
	}
	if fmt.Sprint(r) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
	b.device(0).GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{}, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	b.device(0).MemoryInfo = nvml.Memory{Total: 40 << 30, Used: 5 << 30, Free: 35 << 30}
	if r, err := b.source.Read(id); err != nil || r.UsedMiB != 5120 || r.ReservedMiB >= 0 {
		t.Errorf("with an old driver: %+v, %v", r, err)
	}
	if _, err := b.source.Read("GPU-none"); err == nil {
		t.Error("read a device that is not there")
	}
}

// cut puts a mocked device into MIG mode, with these slices in its places.
func cut(d *dgxa100.Device, places ...nvml.Device) {
	d.MigMode = nvml.DEVICE_MIG_ENABLE
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return len(places), nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if places[i] == nil {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return places[i], nvml.SUCCESS
	}
}

// mockSlice is compute instance inner of GPU instance id.
func mockSlice(id, inner int, name string, memory uint64) nvml.Device {
	return &mock.Device{
		GetUUIDFunc:              func() (string, nvml.Return) { return fmt.Sprintf("MIG-%d-%d", id, inner), nvml.SUCCESS },
		GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return id, nvml.SUCCESS },
		GetComputeInstanceIdFunc: func() (int, nvml.Return) { return inner, nvml.SUCCESS },
		GetNameFunc:              func() (string, nvml.Return) { return "NVIDIA A100-SXM4-40GB MIG " + name, nvml.SUCCESS },
		GetMemoryInfoFunc:        func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: memory << 20}, nvml.SUCCESS },
		GetMemoryInfo_v2Func: func() (nvml.Memory_v2, nvml.Return) {
			return nvml.Memory_v2{Used: 1 << 30, Free: uint64(id) << 30}, nvml.SUCCESS
		},
	}
}

func TestNVMLSlices(t *testing.T) {
	b := newBox(t)
	broken := mockSlice(9, 0, "2g.10gb", 9856).(*mock.Device)
	broken.GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_NOT_FOUND }
	cut(b.device(1), mockSlice(7, 0, "1g.5gb", 4864), nil, mockSlice(2, 1, "1c.2g.10gb", 9856),
		mockSlice(2, 0, "1c.2g.10gb", 9856), broken)
	devices := b.mustDevices(t)
	if len(devices) != 11 {
		t.Fatalf("got %d devices", len(devices))
	}
	parent := devices[1]
	slice := func(id compute.GPUID, mig, name string, vram int64, instance, inner int) compute.GPU {
		g := parent
		g.ID, g.Parent, g.MIG, g.VRAMMiB, g.Instance, g.ComputeInstance = id, parent.ID, mig, vram, instance, inner
		g.Model = "NVIDIA A100-SXM4-40GB MIG " + name
		return g
	}
	want := []compute.GPU{
		slice("MIG-2-0", "1c_2g_10gb", "1c.2g.10gb", 4928, 2, 0),
		slice("MIG-2-1", "1c_2g_10gb", "1c.2g.10gb", 4928, 2, 1),
		slice("MIG-7-0", "1g_5gb", "1g.5gb", 4864, 7, 0),
	}
	for i, g := range want {
		if devices[2+i] != g {
			t.Errorf("got  %+v\nwant %+v", devices[2+i], g)
		}
	}
	if !parent.Sliced() || devices[5].Index != 2 || devices[5].Slice() != "" {
		t.Errorf("around the slices: %+v, %+v", parent, devices[5])
	}
	r, err := b.source.Read("MIG-7-0")
	if err != nil || r.UsedMiB != 1024 || r.FreeMiB != 7168 || r.UtilPercent >= 0 {
		t.Errorf("read %+v, %v", r, err)
	}
}

// TestNVMLSlicesFallWithTheirDevice holds that slices share the faults and the silence
// of their device.
func TestNVMLSlicesFallWithTheirDevice(t *testing.T) {
	b := newBox(t)
	cut(b.device(0), mockSlice(7, 0, "1g.5gb", 4864))
	b.strike(0, 79)
	devices := b.mustDevices(t)
	if devices[0].Health != compute.HealthFailed || devices[1].ID != "MIG-7-0" || devices[1].Health != compute.HealthFailed {
		t.Errorf("after a fatal XID: %+v", devices[:2])
	}
	handle := b.DeviceGetHandleByIndexFunc
	b.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 0 {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		return handle(i)
	}
	if lost := b.mustDevices(t); len(lost) != 9 || lost[1].ID != "MIG-7-0" || lost[1].Health != compute.HealthFailed {
		t.Errorf("silent: %+v", lost[:2])
	}
	b.DeviceGetHandleByIndexFunc = handle
	cut(b.device(0))
	if gone := b.mustDevices(t); len(gone) != 8 {
		t.Errorf("%d devices after the slices were removed", len(gone))
	}
}

func TestNVMLIslands(t *testing.T) {
	none := func(int, int) bool { return false }
	tests := []struct {
		name         string
		linked, near func(a, b int) bool // By NVLink, and across PCIe switches only.
		want         string
	}{
		{"one switch", func(int, int) bool { return true }, none, "[1 1 1 1 1 1 1 1]"},
		{"pairs", func(a, b int) bool { return a/2 == b/2 }, none, "[1 1 3 3 5 5 7 7]"},
		{"chain", func(a, b int) bool { return a < 4 && b == a+1 }, none, "[1 1 1 1 1 6 7 8]"},
		{"pcie", none, func(a, b int) bool { return a/4 == b/4 }, "[1 1 1 1 5 5 5 5]"},
		{
			"links before pcie", func(a, b int) bool { return a == 0 && b == 1 },
			func(a, b int) bool { return a/4 == b/4 }, "[1 1 3 3 5 5 5 5]",
		},
		{"alone", none, none, "[1 2 3 4 5 6 7 8]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBox(t)
			b.join(test.linked, test.near)
			if got := fmt.Sprint(islandsOf(b.mustDevices(t))); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// join makes pairs of devices, the lower number first, linked or near.
func (b *box) join(linked, near func(a, b int) bool) {
	for i := range b.Devices {
		at := func(other nvml.Device) int { return other.(*dgxa100.Device).Index }
		b.device(i).GetP2PStatusFunc = func(other nvml.Device, _ nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
			if linked(i, at(other)) {
				return nvml.P2P_STATUS_OK, nvml.SUCCESS
			}
			return nvml.P2P_STATUS_CHIPSET_NOT_SUPPORTED, nvml.SUCCESS
		}
		b.device(i).GetTopologyCommonAncestorFunc = func(other nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
			if near(i, at(other)) {
				return nvml.TOPOLOGY_MULTIPLE, nvml.SUCCESS
			}
			return nvml.TOPOLOGY_NODE, nvml.SUCCESS
		}
	}
}

func islandsOf(devices []compute.GPU) []int {
	var out []int
	for _, g := range devices {
		out = append(out, g.Island)
	}
	return out
}

// TestNVMLIslandsAreAskedOnce holds that looking again costs no call for each
// pair, and that devices in MIG mode are in no island.
func TestNVMLIslandsAreAskedOnce(t *testing.T) {
	b := newBox(t)
	asked := 0
	b.join(func(int, int) bool { asked++; return true }, func(int, int) bool { return false })
	b.mustDevices(t)
	b.mustDevices(t)
	if asked != 28 {
		t.Errorf("asked %d times about 28 pairs", asked)
	}
	cut(b.device(0), mockSlice(7, 0, "1g.5gb", 4864))
	if got := fmt.Sprint(islandsOf(b.mustDevices(t))); got != "[0 0 2 2 2 2 2 2 2]" {
		t.Errorf("the first in MIG mode: %s", got)
	}
	if asked != 28+21 {
		t.Errorf("asked %d times about 21 more pairs", asked-28)
	}
}

func TestNVMLHealth(t *testing.T) {
	tests := []struct {
		name string
		hurt func(*box)
		want compute.Health
	}{
		{"well", func(*box) {}, compute.HealthOK},
		{"application xid", func(b *box) { b.strike(0, 13) }, compute.HealthOK},
		{"fatal xid", func(b *box) { b.strike(0, 79) }, compute.HealthFailed},
		{"fatal, then an application's", func(b *box) { b.strike(0, 48); b.strike(0, 13) }, compute.HealthFailed},
		{"xid of another", func(b *box) { b.strike(1, 79) }, compute.HealthOK},
		{"row remap pending", func(b *box) {
			b.device(0).GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) {
				return 0, 1, true, false, nvml.SUCCESS
			}
		}, compute.HealthFailed},
		{"row remap failed", func(b *box) {
			b.device(0).GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) {
				return 0, 1, false, true, nvml.SUCCESS
			}
		}, compute.HealthFailed},
		{"lost while asked", func(b *box) {
			b.device(0).GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) {
				return 0, 0, false, false, nvml.ERROR_GPU_IS_LOST
			}
		}, compute.HealthFailed},
		{"old and well", func(b *box) { older(b.device(0), nvml.FEATURE_DISABLED, 0) }, compute.HealthOK},
		{"pages to retire", func(b *box) { older(b.device(0), nvml.FEATURE_ENABLED, 0) }, compute.HealthFailed},
		{"uncorrected errors", func(b *box) { older(b.device(0), nvml.FEATURE_DISABLED, 2) }, compute.HealthFailed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBox(t)
			test.hurt(b)
			if got := b.mustDevices(t)[0].Health; got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// older makes d a device from before row remapping.
func older(d *dgxa100.Device, pending nvml.EnableState, uncorrected uint64) {
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) {
		return 0, 0, false, false, nvml.ERROR_NOT_SUPPORTED
	}
	d.GetRetiredPagesPendingStatusFunc = func() (nvml.EnableState, nvml.Return) { return pending, nvml.SUCCESS }
	d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
		return uncorrected, nvml.SUCCESS
	}
}

func TestNVMLRecoversFromXID(t *testing.T) {
	b := newBox(t)
	b.strike(0, 79)
	if b.mustDevices(t)[0].Health != compute.HealthFailed {
		t.Fatal("well after XID 79")
	}
	b.now = b.now.Add(xidRest - time.Second)
	if b.mustDevices(t)[0].Health != compute.HealthFailed {
		t.Error("well before its rest was over")
	}
	b.now = b.now.Add(2 * time.Second)
	if b.mustDevices(t)[0].Health != compute.HealthOK {
		t.Error("still failed after its rest")
	}
	if log := b.log.String(); !strings.Contains(log, "code=79") {
		t.Errorf("the XID was not logged: %s", log)
	}
}

func TestNVMLLostDevice(t *testing.T) {
	b := newBox(t)
	before := b.mustDevices(t)
	handle := b.DeviceGetHandleByIndexFunc
	b.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 3 {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		return handle(i)
	}
	lost := b.mustDevices(t)
	if len(lost) != 8 || lost[3].ID != before[3].ID || lost[3].Health != compute.HealthFailed {
		t.Fatalf("got %+v", lost[3])
	}
	if again := b.mustDevices(t); again[3].ID != before[3].ID || again[3].Health != compute.HealthFailed {
		t.Errorf("forgotten at the second poll: %+v", again[3])
	}
	b.DeviceGetHandleByIndexFunc = handle
	if back := b.mustDevices(t); back[3] != before[3] {
		t.Errorf("did not recover: %+v", back[3])
	}
	b.DeviceGetCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	if gone := b.mustDevices(t); len(gone) != 7 {
		t.Errorf("unplugged: %d devices", len(gone))
	}
}

func TestNVMLUnknownDeviceThatIsLost(t *testing.T) {
	b := newBox(t)
	b.device(0).GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
	if devices := b.mustDevices(t); len(devices) != 7 || devices[0].Index != 1 {
		t.Errorf("got %+v", devices)
	}
}

func TestNVMLDriverGoesAway(t *testing.T) {
	b := newBox(t)
	before := b.mustDevices(t)
	count := b.DeviceGetCountFunc
	b.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNINITIALIZED }
	b.InitFunc = func() nvml.Return { b.inits++; return nvml.ERROR_DRIVER_NOT_LOADED }
	for range 3 {
		devices, err := b.source.Devices()
		if err == nil || len(devices) != 8 || devices[0].Health != compute.HealthFailed {
			t.Fatalf("got %d devices, %v", len(devices), err)
		}
	}
	if _, err := b.source.Read(before[0].ID); err == nil {
		t.Error("read with the handle of a driver that is gone")
	}
	if b.inits != 2 {
		t.Errorf("initialised %d times, want 2: a missing driver is left alone", b.inits)
	}
	b.DeviceGetCountFunc = count
	b.InitFunc = func() nvml.Return { b.inits++; return nvml.SUCCESS }
	b.now = b.now.Add(driverRetry)
	if after := b.mustDevices(t); after[0] != before[0] {
		t.Errorf("did not come back: %+v", after[0])
	}
}

func TestNVMLDriverComesLater(t *testing.T) {
	b := newBox(t)
	b.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	for range 3 {
		b.now = b.now.Add(driverRetry)
		if devices := b.mustDevices(t); len(devices) != 0 {
			t.Fatalf("got %v", devices)
		}
	}
	if got := strings.Count(b.log.String(), "no gpu driver"); got != 1 {
		t.Errorf("said %d times that there is no driver:\n%s", got, &b.log)
	}
	b.InitFunc = func() nvml.Return { return nvml.SUCCESS }
	b.now = b.now.Add(driverRetry)
	if devices := b.mustDevices(t); len(devices) != 8 {
		t.Errorf("got %d devices", len(devices))
	}
}

// TestNVMLCloseLeavesHangingCall holds that a driver that hangs cannot keep
// the process from ending.
func TestNVMLCloseLeavesHangingCall(t *testing.T) {
	b := newBox(t)
	id := b.mustDevices(t)[0].ID
	entered, release := make(chan struct{}), make(chan struct{})
	b.device(0).GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		close(entered)
		<-release
		return nvml.Memory_v2{}, nvml.ERROR_GPU_IS_LOST
	}
	b.device(0).GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_GPU_IS_LOST }
	b.ShutdownFunc = func() nvml.Return { t.Error("shut down under a call"); return nvml.SUCCESS }
	done := make(chan error)
	go func() {
		_, err := b.source.Read(id)
		done <- err
	}()
	<-entered
	if err := b.source.Close(); err != nil {
		t.Error(err)
	}
	close(release)
	if err := <-done; err == nil {
		t.Error("a lost device was read")
	}
	b.ShutdownFunc = func() nvml.Return { return nvml.SUCCESS }
}
