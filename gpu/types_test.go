package gpu_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"berth/gpu"
)

// TestTableHasNVIDIAsNames checks that the name of a card in NVML leads to a
// type of the table, with its compute capability.
func TestTableHasNVIDIAsNames(t *testing.T) {
	for _, test := range []struct {
		model, want string
		gib         int64
		capability  int
	}{
		{"NVIDIA GeForce GTX 1060 6GB", "gtx_1060", 6, 61},
		{"NVIDIA GeForce GTX 1080 Ti", "gtx_1080_ti", 11, 61},
		{"NVIDIA TITAN X (Pascal)", "titan_x_pascal", 12, 61},
		{"NVIDIA TITAN Xp", "titan_xp", 12, 61},
		{"NVIDIA TITAN V", "titan_v", 12, 70},
		{"NVIDIA TITAN RTX", "titan_rtx", 24, 75},
		{"NVIDIA GeForce GTX 1650 with Max-Q Design", "gtx_1650", 4, 75},
		{"NVIDIA GeForce GTX 1660 SUPER", "gtx_1660_super", 6, 75},
		{"NVIDIA GeForce RTX 2080 Ti", "rtx_2080_ti", 11, 75},
		{"NVIDIA GeForce RTX 2070 SUPER", "rtx_2070_super", 8, 75},
		{"NVIDIA GeForce RTX 3050 Ti Laptop GPU", "rtx_3050_ti_laptop", 4, 86},
		{"NVIDIA GeForce RTX 3090 Ti", "rtx_3090_ti", 24, 86},
		{"NVIDIA GeForce RTX 4070 Ti SUPER", "rtx_4070_ti_super", 16, 89},
		{"NVIDIA GeForce RTX 4090 D", "rtx_4090_d", 24, 89},
		{"NVIDIA GeForce RTX 4090 Laptop GPU", "rtx_4090_laptop", 16, 89},
		{"NVIDIA GeForce RTX 5090", "rtx_5090", 32, 120},
		{"NVIDIA GeForce RTX 5070 Ti Laptop GPU", "rtx_5070_ti_laptop", 12, 120},
		{"Quadro P6000", "p6000", 24, 61},
		{"Quadro GP100", "gp100", 16, 60},
		{"Quadro GV100", "gv100", 32, 70},
		{"Quadro RTX 6000", "rtx_6000", 24, 75},
		{"Quadro T2000 with Max-Q Design", "t2000", 4, 75},
		{"NVIDIA T1000 8GB", "t1000", 4, 75},
		{"NVIDIA RTX A2000 12GB", "rtx_a2000", 6, 86},
		{"NVIDIA RTX A2000 8GB Laptop GPU", "rtx_a2000_laptop", 4, 86},
		{"NVIDIA RTX A6000", "rtx_a6000", 48, 86},
		{"NVIDIA RTX 4000 SFF Ada Generation", "rtx_4000_sff_ada", 20, 89},
		{"NVIDIA RTX 5000 Ada Generation Laptop GPU", "rtx_5000_ada_laptop", 16, 89},
		{"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx_pro_6000_blackwell_workstation", 96, 120},
		{"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx_pro_6000_blackwell_workstation", 96, 120},
		{"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000_blackwell_server", 96, 120},
		{"NVIDIA RTX PRO 5000 Blackwell Generation Laptop GPU", "rtx_pro_5000_blackwell_laptop", 24, 120},
		{"Tesla P40", "p40", 24, 61},
		{"Tesla P100-PCIE-16GB", "p100", 16, 60},
		{"Tesla V100-SXM2-32GB", "v100", 16, 70},
		{"Tesla V100-DGXS-32GB", "v100", 16, 70},
		{"NVIDIA A2", "a2", 16, 86},
		{"NVIDIA A16", "a16", 16, 86},
		{"NVIDIA A30", "a30", 24, 80},
		{"NVIDIA A40", "a40", 48, 86},
		{"NVIDIA A100 80GB PCIe", "a100", 80, 80},
		{"NVIDIA A800-SXM4-80GB", "a800", 80, 80},
		{"NVIDIA L40", "l40", 48, 89},
		{"NVIDIA H100 NVL", "h100", 80, 90},
		{"NVIDIA H800", "h800", 80, 90},
		{"NVIDIA H20", "h20", 96, 90},
		{"NVIDIA GH200 480GB", "gh200", 96, 90},
		{"NVIDIA B200", "b200", 180, 100},
		{"NVIDIA GB200", "gb200", 186, 100},
		{"NVIDIA GB10", "gb10", 119, 121},
	} {
		if got := gpu.TypeOf(test.model); got != test.want || !slices.Contains(gpu.KnownTypes(), got) {
			t.Errorf("%q is a %q, want %q of the table", test.model, got, test.want)
			continue
		}
		devices, err := gpu.ParseSimulated("n", test.want)
		if err != nil || devices[0].VRAMMiB != test.gib<<10 || devices[0].Capability != test.capability {
			t.Errorf("%s: %+v, %v, want %d GiB, capability %d", test.want, devices, err, test.gib, test.capability)
		}
	}
	if got := gpu.TypeOf("NVIDIA GeForce RTX 6090 Ti"); got != "rtx_6090_ti" {
		t.Errorf("an unknown card is a %q", got)
	}
}

// TestTableOfTypes checks each row: it has all that a simulated device needs, TypeOf
// leads back to it, and a device file completes it.
func TestTableOfTypes(t *testing.T) {
	types := gpu.KnownTypes()
	if len(types) < 150 || !slices.IsSorted(types) || len(slices.Compact(slices.Clone(types))) != len(types) {
		t.Errorf("%d types, sorted and each once: %v", len(types), types)
	}
	for _, name := range types {
		devices, err := gpu.ParseSimulated("n", name)
		if err != nil {
			t.Fatal(err)
		}
		g := devices[0]
		switch {
		case gpu.TypeOf(g.Model) != name || g.Type != name:
			t.Errorf("%s: model %q is a %s", name, g.Model, gpu.TypeOf(g.Model))
		case g.VRAMMiB < 1<<10 || g.SpeedMilli < 30 || g.SpeedMilli > 2000 || gpu.SimulatedWatt(g, 1) < 20:
			t.Errorf("%s: %+v", name, g)
		case g.Capability < 60 || g.Capability > 121 || g.BFloat16() != (g.Capability >= 80):
			t.Errorf("%s: compute capability %s, bfloat16 %v", name, g.CapabilityName(), g.BFloat16())
		}
		listed, err := gpu.ParseFile(fmt.Appendf(nil, "- {id: a, type: %s, vram_mib: 1000}", name))
		if err != nil || listed[0].Capability != g.Capability {
			t.Errorf("%s in a file: %+v, %v", name, listed, err)
		}
	}
	_, err := gpu.ParseSimulated("n", "rtx_409")
	if err == nil || !strings.Contains(err.Error(), "rtx_4090_laptop") {
		t.Errorf("a mistyped type: %v", err)
	}
}
