package gpu_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"berth/compute"
	"berth/gpu"
)

func mustOpen(t testing.TB, c gpu.Config) gpu.Source {
	t.Helper()
	source, err := gpu.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := source.Close(); err != nil {
			t.Error(err)
		}
	})
	return source
}

func mustRead(t testing.TB, source gpu.Source, id compute.GPUID) gpu.Reading {
	t.Helper()
	r, err := source.Read(id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustDevices(t testing.TB, source gpu.Source) []compute.GPU {
	t.Helper()
	devices, err := source.Devices()
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

func TestConfigValidate(t *testing.T) {
	tests := []struct {
		name string
		cfg  gpu.Config
		want string // "" for valid.
	}{
		{"default", gpu.Config{}, ""},
		{"auto", gpu.Config{Source: "auto"}, ""},
		{"nvml", gpu.Config{Source: "nvml"}, ""},
		{"none", gpu.Config{Source: "none"}, ""},
		{"file", gpu.Config{Source: "file", File: "gpus.yaml"}, ""},
		{"simulated", gpu.Config{Source: "simulated", Simulated: []string{"a100:4"}}, ""},
		{"file without path", gpu.Config{Source: "file"}, "gpus.file: needed"},
		{"simulated nothing", gpu.Config{Source: "simulated"}, "gpus.simulated: no GPU named"},
		{"unknown", gpu.Config{Source: "magic"}, `gpus.source: unknown source "magic", valid ones are auto, nvml`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := test.cfg.Validate()
			if test.want == "" && err != nil {
				t.Error(err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestNoSource(t *testing.T) {
	source := mustOpen(t, gpu.Config{Source: gpu.SourceNone})
	if devices := mustDevices(t, source); len(devices) != 0 {
		t.Errorf("got %v", devices)
	}
	if _, err := source.Read("GPU-1"); err == nil {
		t.Error("read a device of nothing")
	}
}

// TestNoDriver runs wherever there is no NVIDIA driver, so in CI.
func TestNoDriver(t *testing.T) {
	for _, name := range []string{gpu.SourceAuto, gpu.SourceNVML} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			source := mustOpen(t, gpu.Config{
				Source: name, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			devices := mustDevices(t, source)
			if len(devices) > 0 {
				t.Skipf("this machine has a driver with %d devices; see nvml_device_test.go", len(devices))
			}
			mustDevices(t, source)
			if got := strings.Count(log.String(), "\n"); got != 1 {
				t.Errorf("got %d lines, want 1:\n%s", got, &log)
			}
			if !strings.Contains(log.String(), "no gpu driver") {
				t.Errorf("got %s", &log)
			}
		})
	}
}
