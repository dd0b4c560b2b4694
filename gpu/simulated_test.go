package gpu_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/gpu"
)

func TestParseSimulated(t *testing.T) {
	devices, err := gpu.ParseSimulated("n1", "h100:2, l40s", "t4:1")
	if err != nil {
		t.Fatal(err)
	}
	want := []compute.GPU{
		{ID: "SIM-n1-0", Index: 0, Type: "h100", Model: "NVIDIA H100 (simulated)", VRAMMiB: 81920, SpeedMilli: 1000, Capability: 90},
		{ID: "SIM-n1-1", Index: 1, Type: "h100", Model: "NVIDIA H100 (simulated)", VRAMMiB: 81920, SpeedMilli: 1000, Capability: 90},
		{ID: "SIM-n1-2", Index: 2, Type: "l40s", Model: "NVIDIA L40S (simulated)", VRAMMiB: 49152, SpeedMilli: 450, Capability: 89},
		{ID: "SIM-n1-3", Index: 3, Type: "t4", Model: "NVIDIA T4 (simulated)", VRAMMiB: 16384, SpeedMilli: 120, Capability: 75},
	}
	if len(devices) != len(want) {
		t.Fatalf("got %d devices, want %d", len(devices), len(want))
	}
	for i, g := range devices {
		want[i].Driver, want[i].Simulated = "simulated", true
		if g != want[i] {
			t.Errorf("device %d\n got %+v\nwant %+v", i, g, want[i])
		}
	}
}

func TestParseSimulatedSlicesAndIslands(t *testing.T) {
	devices, err := gpu.ParseSimulated("n1", "h100:4/2,A100.MIG_3g_40gb:3", "h100/1")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range devices {
		got = append(got, fmt.Sprintf("%s@%d %s %q island %d of %q, %d MiB, speed %d",
			g.ID, g.Index, g.Type, g.MIG, g.Island, g.Parent, g.VRAMMiB, g.SpeedMilli))
	}
	want := []string{
		`SIM-n1-0@0 h100 "" island 1 of "", 81920 MiB, speed 1000`,
		`SIM-n1-1@1 h100 "" island 1 of "", 81920 MiB, speed 1000`,
		`SIM-n1-2@2 h100 "" island 2 of "", 81920 MiB, speed 1000`,
		`SIM-n1-3@3 h100 "" island 2 of "", 81920 MiB, speed 1000`,
		`SIM-n1-4@4 a100 "enabled" island 0 of "", 81920 MiB, speed 600`,
		`SIM-n1-4-1@4 a100 "3g_40gb" island 0 of "SIM-n1-4", 40960 MiB, speed 257`,
		`SIM-n1-4-2@4 a100 "3g_40gb" island 0 of "SIM-n1-4", 40960 MiB, speed 257`,
		`SIM-n1-5@5 a100 "enabled" island 0 of "", 81920 MiB, speed 600`,
		`SIM-n1-5-1@5 a100 "3g_40gb" island 0 of "SIM-n1-5", 40960 MiB, speed 257`,
		`SIM-n1-6@6 h100 "" island 3 of "", 81920 MiB, speed 1000`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestSimulatedSlicesMakeTheirDeviceBusy holds that a device in MIG mode is as
// busy as its slices, and that a slice reports only the values that a driver would.
func TestSimulatedSlicesMakeTheirDeviceBusy(t *testing.T) {
	source := mustOpen(t, gpu.Config{
		Source: gpu.SourceSimulated, NodeName: "n1", Simulated: []string{"a100.mig_1g_10gb:7"},
		Load: func(id compute.GPUID) float64 { return float64(len(id)-len("SIM-n1-0")) / 4 }, // The slices': 0.5.
	})
	if parent := mustRead(t, source, "SIM-n1-0"); parent.UtilPercent < 49 || parent.UtilPercent > 50 || parent.PowerWatt <= 0 {
		t.Errorf("parent: %+v", parent)
	}
	if slice := mustRead(t, source, "SIM-n1-0-3"); slice.UtilPercent != 50 || slice.UsedMiB != 5120 || slice.PowerWatt >= 0 {
		t.Errorf("slice: %+v", slice)
	}
}

func TestParseSimulatedRefuses(t *testing.T) {
	tests := []struct{ name, spec, want string }{
		{"unknown type", "h1000:2", `unknown GPU type "h1000", valid ones are such as h100`},
		{"type without its separators", "rtx4090:1", `unknown GPU type "rtx4090", valid ones are such as rtx_4090, `},
		{"nothing", " , ", "no GPU named"},
		{"no number", "h100:two", `"two" is not a number of GPUs from 1 to 64`},
		{"zero", "h100:0", `"0" is not a number`},
		{"negative", "h100:-1", `"-1" is not a number`},
		{"too many of one", "h100:65", `"65" is not a number`},
		{"too many in all", "h100:60,t4:5", "more than 64 simulated GPUs"},
		{"no slice", "a100.mig_1x:2", `"1x" is not a MIG slice`},
		{"slice too large", "a100.mig_7g_160gb", "an a100 has no such slice"},
		{"part of a slice", "a100.mig_1c_2g_20gb", "an a100 has no such slice"},
		{"slices in islands", "a100.mig_1g_10gb:7/2", "an island is named"},
		{"no island", "h100:8/", `"" is not a number of GPUs in an island`},
		{"too many slices", "a100.mig_1g_10gb:60", "more than 64 simulated GPUs"},
		{"two counts", "h100:2:2", `"2:2" is not a number`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := gpu.ParseSimulated("n1", test.spec)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

// TestSimulatedTypes holds the table of DESIGN §7 that prices, quotas and the
// demo's verdicts rest on.
func TestSimulatedTypes(t *testing.T) {
	want := map[string]struct {
		gib   int64
		speed int
	}{
		"t4": {16, 120}, "l4": {24, 200}, "a10": {24, 250}, "l40s": {48, 450},
		"a100": {80, 600}, "h100": {80, 1000}, "h200": {141, 1100}, "b200": {180, 1600},
	}
	for name := range want {
		devices, err := gpu.ParseSimulated("n", name)
		if err != nil {
			t.Fatal(err)
		}
		g := devices[0]
		if g.VRAMMiB != want[name].gib*1024 || g.SpeedMilli != want[name].speed {
			t.Errorf("%s: %d MiB, speed %d", name, g.VRAMMiB, g.SpeedMilli)
		}
		if gpu.TypeOf(g.Model) != name || !strings.HasSuffix(g.Model, "(simulated)") {
			t.Errorf("%s: model %q", name, g.Model)
		}
	}
}

func TestSimulatedReadingFollowsLoad(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	load := 0.0
	source := mustOpen(t, gpu.Config{
		Source: gpu.SourceSimulated, NodeName: "n1", Simulated: []string{"h100:1"},
		Load: func(compute.GPUID) float64 { return load },
		Now:  func() time.Time { return now },
	})
	idle := mustRead(t, source, "SIM-n1-0")
	if idle.UtilPercent != 0 || idle.UsedMiB != 0 || idle.FreeMiB != 81920 || idle.EnergyMilliJ != 0 {
		t.Errorf("idle: %+v", idle)
	}
	if idle.PCIeRxBytesPerS >= 0 || idle.MemoryTemperatureC >= 0 {
		t.Errorf("made up what the load says nothing of: %+v", idle)
	}
	load, now = 0.5, now.Add(2*time.Second)
	half := mustRead(t, source, "SIM-n1-0")
	if half.UtilPercent != 50 || half.UsedMiB+half.FreeMiB != 81920 || half.At != compute.InstantOf(now) {
		t.Errorf("half: %+v", half)
	}
	if half.PowerWatt <= idle.PowerWatt || half.TemperatureC <= idle.TemperatureC {
		t.Errorf("half load is no hotter than idle: %+v", half)
	}
	if want := int64(half.PowerWatt * 2000); half.EnergyMilliJ != want {
		t.Errorf("energy after 2 s: %d mJ, want %d", half.EnergyMilliJ, want)
	}
	load = 7
	if full := mustRead(t, source, "SIM-n1-0"); full.UtilPercent != 100 || full.PowerWatt != full.PowerLimitWatt {
		t.Errorf("full: %+v", full)
	}
	if _, err := source.Read("SIM-n1-1"); err == nil {
		t.Error("a device that is not there was read")
	}
}
