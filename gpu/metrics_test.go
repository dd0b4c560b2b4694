package gpu_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"berth/compute"
	"berth/gpu"
)

var update = flag.Bool("update", false, "write the golden files")

// shown returns a collector of a simulated device, of a real one in MIG mode,
// and of one that does not answer.
func shown() *gpu.Collector {
	devices := []compute.GPU{
		{ID: "SIM-n1-0", Type: "h100", Model: "NVIDIA H100 (simulated)", Driver: "simulated", Simulated: true},
		{ID: "GPU-a", Index: 1, Model: "NVIDIA A100", PCIBus: "00000000:07:00.0", MIG: "enabled", Driver: "550.54.15"},
		{ID: "MIG-7", Index: 1, Type: "a100", Model: "NVIDIA A100 MIG 1g.5gb", MIG: "1g_5gb", Parent: "GPU-a", Instance: 7},
		{ID: "MIG-8-0", Index: 1, Type: "a100", Model: "NVIDIA A100 MIG 1c.2g.10gb", MIG: "1c_2g_10gb", Parent: "GPU-a", Instance: 8},
		{
			ID: "MIG-8-1", Index: 1, Type: "a100", Model: "NVIDIA A100 MIG 1c.2g.10gb", MIG: "1c_2g_10gb", Parent: "GPU-a",
			Instance: 8, ComputeInstance: 1,
		},
		{ID: "GPU-b", Index: 2, Type: "a100", Model: "NVIDIA A100", Health: compute.HealthFailed},
	}
	readings := map[compute.GPUID]gpu.Reading{
		"SIM-n1-0": {
			GPUSample: compute.GPUSample{
				UtilPercent: 50, MemUtilPercent: 50, UsedMiB: 40960, FreeMiB: 40960, TemperatureC: 52, PowerWatt: 402.5,
				PowerLimitWatt: 700, EnergyMilliJ: 805_000, SMClockMHz: 1050, MemClockMHz: 1600,
				PCIeRxBytesPerS: -1, PCIeTxBytesPerS: -1,
			},
			MemoryTemperatureC: -1, EncoderPercent: -1, DecoderPercent: -1, PCIeReplays: -1,
			CorrectableRemaps: -1, UncorrectableRemaps: -1, RemapFailure: -1,
		},
		"GPU-a": {
			GPUSample: compute.GPUSample{
				UtilPercent: -1, MemUtilPercent: -1, UsedMiB: 2048, FreeMiB: 38000, TemperatureC: 41, PowerWatt: 61.5,
				PowerLimitWatt: 400, EnergyMilliJ: 99, SMClockMHz: 1410, MemClockMHz: 1215,
				PCIeRxBytesPerS: 52000, PCIeTxBytesPerS: 51000, XIDErrors: 31,
			},
			MemoryTemperatureC: 44, EncoderPercent: 0, DecoderPercent: 0, ReservedMiB: 600,
			PCIeReplays: 2, CorrectableRemaps: 3, UncorrectableRemaps: 1, RemapFailure: 0,
		},
		"MIG-7":   {GPUSample: compute.GPUSample{UtilPercent: 25, UsedMiB: 12, FreeMiB: 4850}},
		"MIG-8-0": {GPUSample: compute.GPUSample{UtilPercent: -1, UsedMiB: 2000, FreeMiB: 2862}, ReservedMiB: -1},
		"MIG-8-1": {GPUSample: compute.GPUSample{UtilPercent: -1, UsedMiB: 2000, FreeMiB: 2862}, ReservedMiB: -1},
	}
	return gpu.NewCollector(gpu.CollectorConfig{
		Hostname: "n1",
		Devices:  func() []compute.GPU { return devices },
		Last: func(id compute.GPUID) (gpu.Reading, bool) {
			r, ok := readings[id]
			return r, ok
		},
		Allocated: func(id compute.GPUID) int { return len(id) * 100 },
		Holders: func() []gpu.Holder {
			acme, bob := compute.OrgID{UUID: compute.UUID{0: 1}}, compute.OrgID{UUID: compute.UUID{0: 2}}
			return []gpu.Holder{
				{GPU: "GPU-a", Milli: 250, Org: acme, Kind: compute.KindPython},
				{GPU: "GPU-a", Milli: 250, Org: acme, Kind: compute.KindPython},
				{GPU: "GPU-a", Milli: 500, Org: bob, Kind: compute.KindSubSelection},
				{GPU: "MIG-7", Milli: 1000, Org: bob, Kind: compute.KindPython},
				{GPU: "GPU-gone", Milli: 1000, Org: bob, Kind: compute.KindPython},
			}
		},
	})
}

func TestCollectorGolden(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(shown())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			t.Fatal(err)
		}
	}
	const path = "testdata/metrics.golden.txt"
	if *update {
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s\n(-update writes it)", &text, want)
	}
}

// TestCollectorLint holds our own names to Prometheus' rules. DCGM's names
// break several of them and are what the boards ask for.
func TestCollectorLint(t *testing.T) {
	problems, err := testutil.CollectAndLint(shown())
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		if !strings.HasPrefix(problem.Metric, "DCGM_FI_") {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
}
