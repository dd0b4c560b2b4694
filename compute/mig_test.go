package compute_test

import (
	"testing"

	"berth/compute"
)

func TestParseMIG(t *testing.T) {
	tests := []struct {
		driver, name string
		want         compute.MIGSlice
	}{
		{"1g.5gb", "1g_5gb", compute.MIGSlice{Compute: 1, MemoryGiB: 5}},
		{"7g.80gb", "7g_80gb", compute.MIGSlice{Compute: 7, MemoryGiB: 80}},
		{"1g.5gb+me", "1g_5gb_me", compute.MIGSlice{Compute: 1, MemoryGiB: 5}},
		{"1g.24gb+me.all", "1g_24gb_me_all", compute.MIGSlice{Compute: 1, MemoryGiB: 24}},
		{"1c.2g.10gb", "1c_2g_10gb", compute.MIGSlice{Compute: 1, MemoryGiB: 10, Shared: true}},
		{"2c.3g.20gb", "2c_3g_20gb", compute.MIGSlice{Compute: 2, MemoryGiB: 20, Shared: true}},
	}
	for _, test := range tests {
		t.Run(test.driver, func(t *testing.T) {
			if name := compute.MIGName(test.driver); name != test.name {
				t.Errorf("named %q, want %q", name, test.name)
			}
			got, err := compute.ParseMIG(test.name)
			if err != nil || got != test.want {
				t.Errorf("got %+v, %v; want %+v", got, err, test.want)
			}
			if p, err := compute.ParseProfile("A100.MIG_" + test.name); err != nil || p.Kind() != "a100.mig_"+test.name {
				t.Errorf("profile of kind %q, %v", p.Kind(), err)
			}
		})
	}
	for profile, name := range map[string]string{
		"1g.5gb": "1g_5gb", "1g.5gb+me": "1g_5gb_me", "1c.2g.10gb": "1c_2g_10gb", "odd": "odd",
	} {
		if got := compute.MIGProfile(name); got != profile {
			t.Errorf("%q is %q to the driver, want %q", name, got, profile)
		}
	}
}

func TestParseMIGRefuses(t *testing.T) {
	for _, name := range []string{
		"", "_", "1g", "5gb", "1g_", "1g_5", "g_5gb", "0g_5gb", "01g_5gb", "-1g_5gb", "1g_gb", "1g_0gb",
		"1g.5gb", "1g_5gb_", "1g_5gb_ME", "3c_2g_10gb", "1c_5gb", "enabled", "1g_99999gb",
	} {
		if got, err := compute.ParseMIG(name); err == nil {
			t.Errorf("%q was taken as %+v", name, got)
		}
	}
}

func TestGPUIs(t *testing.T) {
	whole, slice := compute.Request{GPUType: "a100"}, compute.Request{GPUType: "a100", MIG: "1g_5gb"}
	tests := []struct {
		name         string
		gpu          compute.GPU
		whole, slice bool
	}{
		{"no such mode", compute.GPU{Type: "a100"}, true, false},
		{"mode off", compute.GPU{Type: "a100", MIG: compute.MIGDisabled}, true, false},
		{"sliced", compute.GPU{Type: "a100", MIG: compute.MIGEnabled}, false, false},
		{"the slice", compute.GPU{Type: "a100", MIG: "1g_5gb"}, false, true},
		{"another slice", compute.GPU{Type: "a100", MIG: "2g_10gb"}, false, false},
		{"of another type", compute.GPU{Type: "h100", MIG: "1g_5gb"}, false, false},
	}
	for _, test := range tests {
		if got := test.gpu.Is(whole); got != test.whole {
			t.Errorf("%s: whole is %v", test.name, got)
		}
		if got := test.gpu.Is(slice); got != test.slice {
			t.Errorf("%s: slice is %v", test.name, got)
		}
	}
}

func TestIsolation(t *testing.T) {
	tests := []struct {
		name  string
		gpu   compute.GPU
		milli int
		want  string
		level string
	}{
		{"whole", compute.GPU{}, 1000, "device", "enforced"},
		{"share", compute.GPU{}, 500, "time_slicing", "advisory"},
		{"slice", compute.GPU{MIG: "1g_5gb"}, 1000, "mig", "enforced"},
		{"compute instance", compute.GPU{MIG: "1c_2g_10gb"}, 1000, "mig_compute", "advisory"},
		{"simulated", compute.GPU{Simulated: true}, 1000, "simulated", "advisory"},
		{"simulated slice", compute.GPU{MIG: "1g_5gb", Simulated: true}, 1000, "simulated", "advisory"},
	}
	for _, test := range tests {
		got := test.gpu.Isolation(test.milli)
		if got.String() != test.want || got.Level() != test.level {
			t.Errorf("%s: %s, %s; want %s, %s", test.name, got, got.Level(), test.want, test.level)
		}
	}
	if level := compute.IsolationNone.Level(); level != "" {
		t.Errorf("without a GPU: %q", level)
	}
	shares := []compute.GPUShare{
		{Isolation: compute.IsolationDevice}, {Isolation: compute.IsolationTimeSlicing}, {Isolation: compute.IsolationMIG},
	}
	if got := compute.IsolationOf(shares); got != compute.IsolationTimeSlicing {
		t.Errorf("the weakest is %s", got)
	}
}

// TestSharesNeverExceedMemory checks that shares that fill a device never hold
// more than its memory, however they divide it.
func TestSharesNeverExceedMemory(t *testing.T) {
	for _, vram := range []int64{1, 7, 999, 4864, 16 << 10, 46068, 81559, 144384} {
		for milli := 1; milli <= compute.WholeGPU; milli++ {
			g := compute.GPU{VRAMMiB: vram}
			sum := g.ShareMiB(milli)*int64(compute.WholeGPU/milli) + g.ShareMiB(compute.WholeGPU%milli)
			if sum > vram {
				t.Fatalf("shares of %dm of %d MiB hold %d MiB", milli, vram, sum)
			}
		}
		if g := (compute.GPU{VRAMMiB: vram}); g.ShareMiB(compute.WholeGPU) != vram {
			t.Errorf("a whole GPU of %d MiB holds %d", vram, g.ShareMiB(compute.WholeGPU))
		}
	}
}

func TestHeldMilliGPU(t *testing.T) {
	tests := []struct {
		name string
		r    compute.Request
		want int64
	}{
		{"CPU-only", compute.Request{VCPUMilli: 1000}, 0},
		{"two GPUs", compute.Request{GPUType: "a100", GPUs: 2, MilliGPU: 1000}, 2000},
		{"a share", compute.Request{GPUType: "t4", GPUs: 1, MilliGPU: 250}, 250},
		{"a slice", compute.Request{GPUType: "a100", MIG: "1g_5gb", GPUs: 1, MilliGPU: 1000}, 142},
		{"three sevenths", compute.Request{GPUType: "h100", MIG: "3g_40gb", GPUs: 1, MilliGPU: 1000}, 428},
		{"a quarter", compute.Request{GPUType: "a30", MIG: "1g_6gb", GPUs: 1, MilliGPU: 1000}, 250},
		{"all of it", compute.Request{GPUType: "a100", MIG: "7g_40gb", GPUs: 1, MilliGPU: 1000}, 1000},
		{"any type", compute.Request{AnyOf: []string{"a100", "h100"}, GPUs: 4, MilliGPU: 1000}, 4000},
	}
	for _, tt := range tests {
		if got := tt.r.HeldMilliGPU(); got != tt.want {
			t.Errorf("%s holds %d, want %d", tt.name, got, tt.want)
		}
	}
}
