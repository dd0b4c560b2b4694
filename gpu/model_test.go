package gpu_test

import (
	"regexp"
	"testing"

	"berth/compute"
	"berth/gpu"
)

func TestTypeOf(t *testing.T) {
	tests := []struct{ model, want string }{
		{"NVIDIA H100 80GB HBM3", "h100"},
		{"NVIDIA H100 PCIe", "h100"},
		{"NVIDIA H100 NVL", "h100"},
		{"NVIDIA H200", "h200"},
		{"NVIDIA H20", "h20"},
		{"NVIDIA B200", "b200"},
		{"NVIDIA GB200", "gb200"},
		{"NVIDIA GH200 480GB", "gh200"},
		{"NVIDIA A100-SXM4-80GB", "a100"},
		{"A100-PCIE-40GB", "a100"},
		{"NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a100"},
		{"NVIDIA A10", "a10"},
		{"NVIDIA A10G", "a10g"},
		{"NVIDIA A2", "a2"},
		{"NVIDIA L4", "l4"},
		{"NVIDIA L40", "l40"},
		{"NVIDIA L40S", "l40s"},
		{"Tesla T4", "t4"},
		{"Tesla V100-SXM2-16GB", "v100"},
		{"Tesla V100S-PCIE-32GB", "v100s"},
		{"Tesla P100-PCIE-16GB", "p100"},
		{"Tesla K80", "k80"},
		{"NVIDIA GeForce RTX 4090", "rtx_4090"},
		{"NVIDIA GeForce RTX 3080 Ti", "rtx_3080_ti"},
		{"NVIDIA GeForce RTX 2080 with Max-Q Design", "rtx_2080"},
		{"NVIDIA GeForce RTX 4060 Laptop GPU", "rtx_4060_laptop"},
		{"NVIDIA RTX A6000", "rtx_a6000"},
		{"NVIDIA RTX 6000 Ada Generation", "rtx_6000_ada"},
		{"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000_blackwell_server"},
		{"Quadro RTX 8000", "rtx_8000"},
		{"GeForce GTX 1080 Ti", "gtx_1080_ti"},
		{"NVIDIA TITAN Xp", "titan_xp"},
		{"NVIDIA H100 (simulated)", "h100"},
		{"Radeon™ Pro W7900", "radeon_pro_w7900"},
		{"NVIDIA Graphics Device", "unknown"},
		{"CPU", "unknown"},
		{"显卡", "unknown"},
		{"", "unknown"},
	}
	for _, test := range tests {
		t.Run(test.model, func(t *testing.T) {
			if got := gpu.TypeOf(test.model); got != test.want {
				t.Errorf("TypeOf(%q) = %q, want %q", test.model, got, test.want)
			}
		})
	}
}

// FuzzTypeOf holds that every type can be asked for in a hardware profile.
func FuzzTypeOf(f *testing.F) {
	f.Add("NVIDIA H100 80GB HBM3")
	f.Add("gpu cpu 1x")
	f.Add("\xff GPU.4x")
	valid := regexp.MustCompile(`^[a-z0-9_]+$`)
	f.Fuzz(func(t *testing.T, model string) {
		name := gpu.TypeOf(model)
		if !valid.MatchString(name) {
			t.Fatalf("TypeOf(%q) = %q", model, name)
		}
		p, err := compute.ParseProfile("gpu." + name)
		if err != nil || p.GPUType != name {
			t.Fatalf("profile of %q, from %q: %+v, %v", name, model, p, err)
		}
	})
}
