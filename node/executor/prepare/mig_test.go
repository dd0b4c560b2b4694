package prepare

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"berth/compute"
)

func TestGPUVariables(t *testing.T) {
	none := map[string]string{"BERTH_GPU_TYPE": "", "BERTH_GPUS": "", "CUDA_VISIBLE_DEVICES": ""}
	tests := []struct {
		name   string
		gpus   []compute.GPU
		shares []compute.GPUShare
		want   map[string]string
	}{
		{"no GPU", nil, nil, none},
		{
			"two whole ones of different memory",
			[]compute.GPU{{ID: "GPU-a", Type: "h100"}, {ID: "GPU-b", Type: "h100"}},
			[]compute.GPUShare{
				{GPU: "GPU-a", Milli: 1000, VRAMMiB: 81559, Isolation: compute.IsolationDevice},
				{GPU: "GPU-b", Milli: 1000, VRAMMiB: 81000, Isolation: compute.IsolationDevice},
			},
			map[string]string{
				"BERTH_GPU_TYPE": "h100", "BERTH_GPUS": "GPU-a,GPU-b", "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
				"BERTH_GPU_MILLI": "1000", "BERTH_GPU_MEMORY_MIB": "81000", "BERTH_GPU_ISOLATION": "enforced",
			},
		},
		{
			"a slice",
			[]compute.GPU{{ID: "MIG-a", Type: "a100", MIG: "1g_5gb", Parent: "GPU-a"}},
			[]compute.GPUShare{{GPU: "MIG-a", Milli: 1000, VRAMMiB: 4864, Isolation: compute.IsolationMIG}},
			map[string]string{
				"BERTH_GPU_TYPE": "a100", "BERTH_GPU_MIG": "1g.5gb", "BERTH_GPUS": "MIG-a", "CUDA_VISIBLE_DEVICES": "MIG-a",
				"BERTH_GPU_MILLI": "1000", "BERTH_GPU_MEMORY_MIB": "4864", "BERTH_GPU_ISOLATION": "enforced",
			},
		},
		{
			"a share",
			[]compute.GPU{{ID: "GPU-a", Type: "t4"}},
			[]compute.GPUShare{{GPU: "GPU-a", Milli: 250, VRAMMiB: 3840, Isolation: compute.IsolationTimeSlicing}},
			map[string]string{
				"BERTH_GPU_TYPE": "t4", "BERTH_GPUS": "GPU-a", "CUDA_VISIBLE_DEVICES": "GPU-a",
				"BERTH_GPU_MILLI": "250", "BERTH_GPU_MEMORY_MIB": "3840", "BERTH_GPU_ISOLATION": "advisory",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			work := compute.Work{Attempt: &compute.Attempt{GPUs: test.shares}, GPUs: test.gpus}
			if got := gpuVariables(work); !maps.Equal(got, test.want) {
				t.Errorf("got  %v\nwant %v", got, test.want)
			}
		})
	}
}

func TestMIGDevices(t *testing.T) {
	proc := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(proc, "driver/nvidia/capabilities", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("gpu1/mig/gi7/access", "DeviceFileMinor: 66\nDeviceFileMode: 444\nDeviceFileModify: 1\n")
	write("gpu1/mig/gi7/ci0/access", "DeviceFileMinor: 67\n")
	write("gpu1/mig/gi8/access", "DeviceFileMinor: none\n")
	write("gpu1/mig/gi8/ci1/access", "DeviceFileMode: 444\nDeviceFileMinor: 76\n")
	tests := []struct {
		name  string
		slice compute.GPU
		want  []string
	}{
		{
			"both",
			compute.GPU{Index: 1, Instance: 7},
			[]string{"/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67"},
		},
		{"no number", compute.GPU{Index: 1, Instance: 8, ComputeInstance: 1}, []string{"/dev/nvidia-caps/nvidia-cap76"}},
		{"of another device", compute.GPU{Index: 0, Instance: 7}, nil},
	}
	for _, test := range tests {
		if got := migDevices(proc, test.slice); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
