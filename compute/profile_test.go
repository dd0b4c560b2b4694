package compute_test

import (
	"strings"
	"testing"

	"berth/compute"
)

func TestParseProfile(t *testing.T) {
	whole := func(gpuType string, count int) compute.Profile {
		return compute.Profile{GPUType: gpuType, Count: count, MilliGPU: compute.WholeGPU}
	}
	tests := []struct {
		text      string
		want      compute.Profile
		canonical string
	}{
		{"cpu", compute.Profile{Count: 1}, "cpu"},
		{"CPU.4x", compute.Profile{Count: 4}, "cpu.4x"},
		{"cpu.1x", compute.Profile{Count: 1}, "cpu"},
		{"cpu.4096x", compute.Profile{Count: 4096}, "cpu.4096x"},
		{"h100", whole("h100", 1), "gpu.h100"},
		{"gpu.h100", whole("h100", 1), "gpu.h100"},
		{"GPU.H100.2X", whole("h100", 2), "gpu.h100.2x"},
		{"l40s.8x", whole("l40s", 8), "gpu.l40s.8x"},
		{"gpu.a100.1x", whole("a100", 1), "gpu.a100"},
		{"A100.500M", compute.Profile{GPUType: "a100", Count: 1, MilliGPU: 500}, "gpu.a100.500m"},
		{"t4.1m", compute.Profile{GPUType: "t4", Count: 1, MilliGPU: 1}, "gpu.t4.1m"},
		{"t4.999m", compute.Profile{GPUType: "t4", Count: 1, MilliGPU: 999}, "gpu.t4.999m"},
		{"gpu.a100.mig_1g_5gb", compute.Profile{GPUType: "a100", Count: 1, MilliGPU: 1000, MIG: "1g_5gb"}, "gpu.a100.mig_1g_5gb"},
		{"rtx_4090", whole("rtx_4090", 1), "gpu.rtx_4090"},
		{strings.Repeat("a", 60), whole(strings.Repeat("a", 60), 1), "gpu." + strings.Repeat("a", 60)},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			got, err := compute.ParseProfile(tt.text)
			if err != nil || got != tt.want || got.String() != tt.canonical {
				t.Errorf("got %+v (%s), %v; want %+v (%s)", got, got, err, tt.want, tt.canonical)
			}
			if got.IsGPU() != strings.HasPrefix(tt.canonical, "gpu.") {
				t.Errorf("IsGPU is %v", got.IsGPU())
			}
		})
	}
}

func TestParseProfileRefuses(t *testing.T) {
	for _, text := range []string{
		"", ".", "..", "gpu", strings.Repeat("0", 61), "gpu.", "gpu..2x", "gpu.cpu", "gpu.cpu.2x", "gpu.gpu", "gpu.gpu.h100",
		"cpu.", "cpu.0x", "cpu.-1x", "cpu.+1x", "cpu.01x", "cpu.1.5x", "cpu.500m", "cpu.mig_1g_5gb", "cpu.x", "cpu.2",
		"cpu.4097x", "cpu.9223372036854775807x", "cpu.99999999999999999999x",
		"h100.3x", "h100.16x", "h100.0x", "h100.0m", "h100.1000m", "h100.500", "h100.500M.2x", "h100.2xm", "h100.2mx", "h100.xx",
		"a100.mig_", "a100.mig", "a100.mig_1g.5gb", "a100.MIG-1g", "h100 ", " h100", "h100\n", "h-100", "h100/..", "h100.2x.", "h100,t4",
		"gpu.\u212a80", "ｈ100", "h100.２x", "h100\x00", "\xff", "gpu.münchen",
		strings.Repeat("a", 65), "gpu." + strings.Repeat("a", 1<<20), strings.Repeat(".", 1<<16),
	} {
		if got, err := compute.ParseProfile(text); err == nil {
			t.Errorf("%.40q is taken for %+v", text, got)
		}
	}
}

func FuzzParseProfile(f *testing.F) {
	for _, text := range []string{"cpu", "cpu.4x", "h100", "gpu.h100.2x", "a100.500m", "gpu.a100.mig_1g_5gb", "gpu.", "cpu.0x", "\u212a80"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := compute.ParseProfile(text)
		if err != nil {
			if p != (compute.Profile{}) {
				t.Errorf("%q: an error comes with %+v", text, p)
			}
			return
		}
		if p.Count < 1 || p.IsGPU() != (p.MilliGPU >= 1) || p.MilliGPU > compute.WholeGPU || p.MilliGPU < 0 {
			t.Errorf("%q: %+v makes no sense", text, p)
		}
		again, err := compute.ParseProfile(p.String())
		if err != nil || again != p {
			t.Errorf("%q is %+v, its name %q is %+v, %v", text, p, p, again, err)
		}
	})
}
