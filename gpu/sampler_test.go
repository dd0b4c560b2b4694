package gpu_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth/compute"
	"berth/gpu"
)

func TestSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		devices := mustSimulate(t, "h100:2")
		s := gpu.NewSampler(gpu.SamplerConfig{
			Source: &plug{}, Devices: func() []compute.GPU { return devices }, Interval: time.Second,
		})
		if _, ok := s.Last("SIM-n1-0"); ok || s.Since("SIM-n1-0", 0) != nil {
			t.Error("samples before the first round")
		}
		stop := goRun(t, s.Run)
		defer stop()
		synctest.Wait()
		begin := compute.InstantOf(time.Now())
		advance(3500 * time.Millisecond)
		last, ok := s.Last("SIM-n1-1")
		if !ok || last.UtilPercent != 8 {
			t.Errorf("last: %+v, %v", last, ok)
		}
		got := s.Since("SIM-n1-0", begin.Add(time.Second))
		if len(got) != 3 || got[0].UtilPercent != 3 || got[2].UtilPercent != 7 {
			t.Errorf("since: %+v", got)
		}
	})
}

func TestSamplerKeepsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		devices := mustSimulate(t, "h100:1")
		s := gpu.NewSampler(gpu.SamplerConfig{
			Source: &plug{}, Devices: func() []compute.GPU { return devices }, Interval: time.Second,
		})
		stop := goRun(t, s.Run)
		defer stop()
		const rounds = gpu.MaxSamples + 10
		advance(rounds*time.Second - time.Millisecond)
		synctest.Wait()
		got := s.Since("SIM-n1-0", 0)
		if len(got) != gpu.MaxSamples {
			t.Fatalf("%d samples kept", len(got))
		}
		for i, sample := range got {
			if want := float64(rounds - gpu.MaxSamples + i + 1); sample.UtilPercent != want {
				t.Fatalf("sample %d is number %v, want %v", i, sample.UtilPercent, want)
			}
		}
	})
}

func TestSamplerForgetsWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		source := &plug{}
		s := gpu.NewSampler(gpu.SamplerConfig{
			Source: source, Devices: func() []compute.GPU { return mustSimulate(t, "h100:1") },
			Interval: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		stop := goRun(t, s.Run)
		advance(1500 * time.Millisecond)
		source.mu.Lock()
		source.silent = true
		source.mu.Unlock()
		advance(10 * time.Second)
		if _, ok := s.Last("SIM-n1-0"); ok {
			t.Error("a device that does not answer still has a last reading")
		}
		if got := s.Since("SIM-n1-0", 0); len(got) != 2 {
			t.Errorf("%d samples, want the 2 from before", len(got))
		}
		advance(gpu.MaxSamples * time.Second)
		if got := s.Since("SIM-n1-0", 0); got != nil {
			t.Errorf("%d samples of a device that is long gone", len(got))
		}
		stop()
		if got := strings.Count(log.String(), "gpu cannot be read"); got != 1 {
			t.Errorf("one silence was logged %d times:\n%s", got, &log)
		}
	})
}

func TestSamplerDriverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		source := &plug{}
		s := gpu.NewSampler(gpu.SamplerConfig{
			Source: source, Devices: func() []compute.GPU { return mustSimulate(t, "h100:1") }, Interval: time.Second,
		})
		stop := goRun(t, s.Run)
		synctest.Wait()
		source.set(nil, nil, stuck)
		advance(time.Minute)
		if _, ok := s.Last("SIM-n1-0"); ok {
			t.Error("a stale reading is shown as the last one")
		}
		source.set(nil, nil, nil)
		close(stuck)
		advance(3 * time.Second)
		if _, ok := s.Last("SIM-n1-0"); !ok {
			t.Error("readings did not go on")
		}
		stop()
	})
}
