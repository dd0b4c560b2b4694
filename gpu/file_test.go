package gpu_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/compute"
	"berth/gpu"
)

const twoDevices = `
- id: GPU-1
  model: NVIDIA L40S
  vram_mib: 46068
  pci_bus: "00000000:01:00.0"
- id: SIM-n1-0
  type: h100
  simulated: true
  health: failed
`

func TestParseFile(t *testing.T) {
	want := []compute.GPU{
		{ID: "GPU-1", Type: "l40s", Model: "NVIDIA L40S", VRAMMiB: 46068, PCIBus: "00000000:01:00.0", Capability: 89},
		{
			ID: "SIM-n1-0", Index: 1, Type: "h100", Model: "NVIDIA H100 (simulated)", VRAMMiB: 81920,
			Driver: "simulated", Health: compute.HealthFailed, Simulated: true, SpeedMilli: 1000, Capability: 90,
		},
	}
	tests := []struct{ name, text string }{
		{"yaml", twoDevices},
		{"json", `[{"id": "GPU-1", "model": "NVIDIA L40S", "vram_mib": 46068, "pci_bus": "00000000:01:00.0"},
			{"id": "SIM-n1-0", "type": "h100", "simulated": true, "health": "failed"}]`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			devices, err := gpu.ParseFile([]byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			if len(devices) != 2 || devices[0] != want[0] || devices[1] != want[1] {
				t.Errorf("got  %+v\nwant %+v", devices, want)
			}
		})
	}
	if devices, err := gpu.ParseFile([]byte("[]\n")); err != nil || len(devices) != 0 {
		t.Errorf("[]: %v, %v", devices, err)
	}
}

// TestParseFileSlices holds that slices stand behind their parent, with its
// index, wherever the file lists them.
func TestParseFileSlices(t *testing.T) {
	devices, err := gpu.ParseFile([]byte(`
- {id: MIG-b, type: a100, mig: 2g.10gb, parent: SIM-1, instance: 2, simulated: true}
- {id: SIM-0, type: a100, simulated: true, island: 1}
- {id: SIM-1, type: a100, mig: enabled, simulated: true}
- {id: MIG-a, type: a100, mig: 1G_5GB, parent: SIM-1, instance: 1, simulated: true, vram_mib: 4864}
`))
	if err != nil {
		t.Fatal(err)
	}
	a100 := compute.GPU{Type: "a100", Model: "NVIDIA A100 (simulated)", VRAMMiB: 80 << 10, Driver: "simulated", Simulated: true, SpeedMilli: 600, Capability: 80}
	want := []compute.GPU{a100, a100, a100, a100}
	want[0].ID, want[0].Island = "SIM-0", 1
	want[1].ID, want[1].Index, want[1].MIG = "SIM-1", 1, compute.MIGEnabled
	for i, id := range []compute.GPUID{"MIG-a", "MIG-b"} {
		g := &want[2+i]
		g.ID, g.Index, g.Parent, g.Instance = id, 1, "SIM-1", i+1
	}
	want[2].MIG, want[2].Model, want[2].VRAMMiB, want[2].SpeedMilli = "1g_5gb", "NVIDIA A100 MIG 1g.5gb (simulated)", 4864, 85
	want[3].MIG, want[3].Model, want[3].VRAMMiB, want[3].SpeedMilli = "2g_10gb", "NVIDIA A100 MIG 2g.10gb (simulated)", 10240, 171
	if len(devices) != len(want) {
		t.Fatalf("got %+v", devices)
	}
	for i := range want {
		if devices[i] != want[i] {
			t.Errorf("got  %+v\nwant %+v", devices[i], want[i])
		}
	}
}

func TestParseFileRefuses(t *testing.T) {
	good := "- {id: GPU-1, type: t4, vram_mib: 15360}\n"
	tests := []struct {
		name, text string
		want       []string
	}{
		{"empty", " \n", []string{"empty, write []"}},
		{"no list", "id: GPU-1\n", []string{"want a list"}},
		{"not yaml", good + "- {id: [}\n", []string{"line 2"}},
		{"unknown key", good + "- id: GPU-2\n  vram: 3\n", []string{"line 3", `"vram"`}},
		{"wrong type", good + "- id: GPU-2\n  vram_mib: lots\n", []string{"line 3", `"lots" is not of type int64`}},
		{"no id", good + "\n- type: t4\n  vram_mib: 1\n", []string{"line 3", "id is needed"}},
		{"no type", good + "- {id: GPU-2, vram_mib: 1}\n", []string{"line 2", "type or model"}},
		{"cpu", good + "- {id: GPU-2, type: cpu, vram_mib: 1}\n", []string{"line 2", `"cpu"`}},
		{"type", good + "- {id: GPU-2, type: T-4, vram_mib: 1}\n", []string{"line 2", `"T-4"`}},
		{"no memory", good + "- {id: GPU-2, type: t4}\n", []string{"line 2", "vram_mib is needed"}},
		{"twice", good + good, []string{"line 2", `"GPU-1" is there twice`}},
		{"health", good + "- {id: GPU-2, type: t4, vram_mib: 1, health: ill}\n", []string{"line 2", `"ill"`}},
		{"mig", good + "- {id: GPU-2, type: t4, vram_mib: 1, mig: maybe}\n", []string{"line 2", "maybe"}},
		{"slice without parent", good + "- {id: M, type: t4, vram_mib: 1, mig: 1g.5gb, instance: 1}\n", []string{"line 2", "parent is needed"}},
		{"slice without instance", good + "- {id: M, type: t4, vram_mib: 1, mig: 1g.5gb, parent: GPU-1}\n", []string{"line 2", "instance is needed"}},
		{"slice of a whole", good + "- {id: M, type: t4, vram_mib: 1, mig: 1g.5gb, parent: GPU-1, instance: 1}\n", []string{"line 2", `"GPU-1" is not a device`}},
		{"parent of no slice", good + "- {id: M, type: t4, vram_mib: 1, parent: GPU-1}\n", []string{"line 2", "nothing else"}},
		{"instance of no slice", good + "- {id: M, type: t4, vram_mib: 1, instance: 3}\n", []string{"line 2", "slices only"}},
		{"island", good + "- {id: M, type: t4, vram_mib: 1, island: -1}\n", []string{"line 2", "not negative"}},
		{"speed", "- {id: GPU-2, type: t4, vram_mib: 1, speed_milli: 5}\n", []string{"line 1", "simulated devices only"}},
		{"no speed", "- {id: GPU-2, type: odd, vram_mib: 1, simulated: true}\n", []string{"line 1", "speed_milli is needed"}},
		{"two faults", "- {type: t4}\n- {id: GPU-2}\n", []string{"line 1", "line 2"}},
		{"two documents", good + "---\n" + good, []string{"2 documents"}},
		{"key twice", "- {id: GPU-1, id: GPU-2, type: t4, vram_mib: 1}\n", []string{"line 1", `"id"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := gpu.ParseFile([]byte(test.text))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q in it", err, want)
				}
			}
		})
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add([]byte(twoDevices))
	f.Add([]byte("[]"))
	f.Add([]byte("- id: &a GPU-1\n  type: *a\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		devices, err := gpu.ParseFile(text)
		if err != nil {
			return
		}
		seen := make(map[compute.GPUID]bool)
		whole := 0
		for i, g := range devices {
			if g.Parent == "" {
				whole++
			}
			if g.ID == "" || seen[g.ID] || g.Type == "" || g.VRAMMiB <= 0 || g.Index != whole-1 {
				t.Fatalf("device %d of %q: %+v", i, text, g)
			}
			seen[g.ID] = true
		}
	})
}

func mustWrite(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFileSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpus.yaml")
	if _, err := gpu.Open(gpu.Config{Source: gpu.SourceFile, File: path}); err == nil {
		t.Fatal("opened a file that is not there")
	}
	mustWrite(t, path, twoDevices)
	source := mustOpen(t, gpu.Config{Source: gpu.SourceFile, File: path})
	if devices := mustDevices(t, source); len(devices) != 2 {
		t.Fatalf("got %v", devices)
	}
	if r := mustRead(t, source, "SIM-n1-0"); r.UtilPercent != 0 {
		t.Errorf("simulated: %+v", r)
	}
	if r := mustRead(t, source, "GPU-1"); r.UtilPercent >= 0 || r.FreeMiB >= 0 {
		t.Errorf("made up values of a real device: %+v", r)
	}

	mustWrite(t, path, "- id: GPU-1\n  type: [\n")
	devices, err := source.Devices()
	if err == nil || !strings.Contains(err.Error(), path) || len(devices) != 2 {
		t.Errorf("broken file: %d devices, %v", len(devices), err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if devices, err := source.Devices(); err == nil || len(devices) != 2 {
		t.Errorf("no file: %d devices, %v", len(devices), err)
	}

	mustWrite(t, path, "- {id: GPU-1, type: l40s, vram_mib: 46068}\n")
	if devices := mustDevices(t, source); len(devices) != 1 || devices[0].ID != "GPU-1" {
		t.Errorf("unplugged: %v", devices)
	}
	if _, err := source.Read("SIM-n1-0"); err == nil {
		t.Error("read an unplugged device")
	}
}
