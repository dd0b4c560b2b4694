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
		copy(pci.BusId[:], fmt.Sprintf("00000000:%02X:00.0", i+1))
		return pci, nvml.SUCCESS
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
		VRAMMiB: 40 << 10, PCIBus: "00000000:02:00.0", MIG: "enabled", Driver: "550.54.15",
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

func TestNVMLSlices(t *testing.T) {
	b := newBox(t)
	slice := func(id int, name string) nvml.Device {
		return &mock.Device{
			GetGpuInstanceIdFunc: func() (int, nvml.Return) { return id, nvml.SUCCESS },
			GetNameFunc:          func() (string, nvml.Return) { return "NVIDIA A100-SXM4-40GB MIG " + name, nvml.SUCCESS },
			GetMemoryInfo_v2Func: func() (nvml.Memory_v2, nvml.Return) {
				return nvml.Memory_v2{Used: 1 << 30, Free: uint64(id) << 30}, nvml.SUCCESS
			},
		}
	}
	places := []nvml.Device{slice(7, "1g.5gb"), nil, slice(2, "1c.2g.10gb"), slice(2, "1c.2g.10gb")}
	d := b.device(0)
	d.MigMode = nvml.DEVICE_MIG_ENABLE
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return len(places), nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if places[i] == nil {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return places[i], nvml.SUCCESS
	}
	r, err := b.source.Read(b.mustDevices(t)[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	want := []Instance{
		{ID: 2, Profile: "2g.10gb", UsedMiB: 1024, FreeMiB: 2048},
		{ID: 7, Profile: "1g.5gb", UsedMiB: 1024, FreeMiB: 7168},
	}
	if fmt.Sprint(r.Instances) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", r.Instances, want)
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
		t.Errorf("forgotten at the second look: %+v", again[3])
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
