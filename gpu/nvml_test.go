//go:build gpu && linux && cgo

package gpu_test

import (
	"log/slog"
	"strings"
	"testing"

	"berth/compute"
	"berth/gpu"
)

// TestDevice asks the real driver of a machine with a device:
//
//	go test -tags gpu -run Device ./gpu
func TestDevice(t *testing.T) {
	source := mustOpen(t, gpu.Config{
		Source: gpu.SourceNVML, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	devices := mustDevices(t, source)
	if len(devices) == 0 {
		t.Fatal("no device: this test is for machines that have one")
	}
	for _, g := range devices {
		t.Logf("%+v", g)
		if !strings.HasPrefix(string(g.ID), "GPU-") || g.Type == gpu.UnknownType || g.VRAMMiB < 1024 ||
			g.PCIBus == "" || g.Driver == "" || g.Simulated {
			t.Errorf("described as %+v", g)
		}
		if g.Health != compute.HealthOK {
			t.Errorf("%s is %s", g.ID, g.Health)
		}
		r := mustRead(t, source, g.ID)
		t.Logf("%+v", r)
		if r.UtilPercent < 0 || r.UtilPercent > 100 || r.TemperatureC < 1 || r.TemperatureC > 120 {
			t.Errorf("reading %+v", r)
		}
		if sum := r.UsedMiB + r.FreeMiB + max(r.ReservedMiB, 0); sum < g.VRAMMiB-2 || sum > g.VRAMMiB+2 {
			t.Errorf("used, free and reserved memory are %d MiB of %d", sum, g.VRAMMiB)
		}
		if r.PowerLimitWatt > 0 && (r.PowerWatt <= 0 || r.PowerWatt > 2*r.PowerLimitWatt) {
			t.Errorf("%v W, limit %v W", r.PowerWatt, r.PowerLimitWatt)
		}
	}
}
