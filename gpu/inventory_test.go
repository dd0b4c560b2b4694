package gpu_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth/compute"
	"berth/gpu"
)

// plug is a source whose devices the test sets. It hangs while stuck is open.
type plug struct {
	mu      sync.Mutex
	devices []compute.GPU
	err     error
	stuck   chan struct{}
	silent  bool
	asked   int
}

func (p *plug) set(devices []compute.GPU, err error, stuck chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices, p.err, p.stuck = devices, err, stuck
}

func (p *plug) times() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func (p *plug) Devices() ([]compute.GPU, error) {
	p.mu.Lock()
	p.asked++
	stuck := p.stuck
	p.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.devices, p.err
}

func (p *plug) Read(id compute.GPUID) (gpu.Reading, error) {
	p.mu.Lock()
	p.asked++
	stuck, silent, asked := p.stuck, p.silent, p.asked
	p.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	if silent {
		return gpu.Reading{}, errors.New("lost")
	}
	return gpu.Reading{GPUSample: compute.GPUSample{
		GPU: id, At: compute.InstantOf(time.Now()), UtilPercent: float64(asked),
	}}, nil
}

func (p *plug) Close() error { return nil }

func mustSimulate(t testing.TB, spec string) []compute.GPU {
	t.Helper()
	devices, err := gpu.ParseSimulated("n1", spec)
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

// goRun starts run, and waits for its end when the test ends.
func goRun(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// advance lets d pass in a bubble of synctest.
func advance(d time.Duration) { <-time.After(d) }

func signalled(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestWatcherVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &plug{devices: mustSimulate(t, "h100:2")}
		node := compute.NodeID{UUID: compute.UUID{1}}
		w := gpu.NewWatcher(gpu.WatcherConfig{Node: node, Source: source})
		if v := w.Current().Version; v != 0 {
			t.Errorf("version before the first poll: %d", v)
		}
		stop := goRun(t, w.Run)
		defer stop()
		synctest.Wait()
		first := w.Current()
		if !signalled(w.Changed()) || first.Version == 0 || len(first.GPUs) != 2 || first.Node != node {
			t.Fatalf("first: %+v", first)
		}
		if first.VCPUMilli != 16_000 || first.MemoryMiB != 128<<10 {
			t.Errorf("simulated GPUs declare %d vCPU milli, %d MiB", first.VCPUMilli, first.MemoryMiB)
		}
		advance(10 * gpu.DefaultWatchInterval)
		if signalled(w.Changed()) || w.Current().Version != first.Version {
			t.Errorf("nothing changed, but the version is %d", w.Current().Version)
		}
		source.set(mustSimulate(t, "h100:1"), nil, nil)
		advance(gpu.DefaultWatchInterval)
		synctest.Wait()
		second := w.Current()
		if !signalled(w.Changed()) || second.Version <= first.Version || len(second.GPUs) != 1 {
			t.Errorf("second: %+v", second)
		}
		if len(first.GPUs) != 2 {
			t.Error("an inventory that was handed out has changed")
		}
	})
}

// TestWatcherVersionRisesAcrossRestart holds that a node that was restarted is
// not taken for an older self.
func TestWatcherVersionRisesAcrossRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last uint64
		for range 3 {
			w := gpu.NewWatcher(gpu.WatcherConfig{Source: &plug{}})
			w.Poll(t.Context())
			if v := w.Current().Version; v <= last {
				t.Errorf("version %d after %d", v, last)
			}
			last = w.Current().Version
			advance(time.Millisecond)
		}
	})
}

func TestWatcherCapacity(t *testing.T) {
	physical := compute.GPU{ID: "GPU-1", Type: "l40s", Model: "NVIDIA L40S", VRAMMiB: 46068}
	host := int64(runtime.NumCPU()) * 1000
	tests := []struct {
		name string
		cfg  gpu.WatcherConfig
		gpus []compute.GPU
		vcpu int64
	}{
		{"no devices", gpu.WatcherConfig{}, nil, host},
		{"physical", gpu.WatcherConfig{}, []compute.GPU{physical}, host},
		{"physical and simulated", gpu.WatcherConfig{}, append(mustSimulate(t, "h100:4"), physical), host},
		{"simulated", gpu.WatcherConfig{}, mustSimulate(t, "h100:4"), 32_000},
		{"set", gpu.WatcherConfig{VCPUMilli: 1500, MemoryMiB: 512}, mustSimulate(t, "h100:4"), 1500},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.cfg.Source = &plug{devices: test.gpus}
			w := gpu.NewWatcher(test.cfg)
			w.Poll(t.Context())
			got := w.Current()
			if got.VCPUMilli != test.vcpu || got.MemoryMiB < 64 {
				t.Errorf("%d vCPU milli, %d MiB; want %d", got.VCPUMilli, got.MemoryMiB, test.vcpu)
			}
		})
	}
}

func TestWatcherSourceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		devices := mustSimulate(t, "h100:2")
		source := &plug{devices: devices}
		w := gpu.NewWatcher(gpu.WatcherConfig{Source: source, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		stop := goRun(t, w.Run)
		synctest.Wait()
		version := w.Current().Version
		source.set(devices, errors.New("line 3: broken"), nil)
		advance(10 * gpu.DefaultWatchInterval)
		source.set(devices, nil, nil)
		advance(2 * gpu.DefaultWatchInterval)
		stop()
		if w.Current().Version != version || len(w.Current().GPUs) != 2 {
			t.Errorf("the last good inventory was not kept: %+v", w.Current())
		}
		if got := strings.Count(log.String(), "line 3: broken"); got != 1 {
			t.Errorf("one fault was logged %d times:\n%s", got, &log)
		}
		if !strings.Contains(log.String(), "works again") {
			t.Errorf("the end of the fault was not logged:\n%s", &log)
		}
	})
}

// TestWatcherDriverHangs holds that devices of a driver that does not answer
// get no work, that only one call is lost to it, and that Run ends all the same.
func TestWatcherDriverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		devices, stuck := mustSimulate(t, "h100:2"), make(chan struct{})
		source := &plug{devices: devices}
		w := gpu.NewWatcher(gpu.WatcherConfig{Source: source})
		stop := goRun(t, w.Run)
		synctest.Wait()
		source.set(devices, nil, stuck)
		advance(time.Minute)
		if g := w.Current().GPUs; len(g) != 2 || g[0].Health != compute.HealthFailed {
			t.Errorf("while it hangs: %+v", g)
		}
		if asked := source.times(); asked != 2 {
			t.Errorf("asked %d times, want 2: a driver that hangs is not asked again", asked)
		}
		source.set(devices, nil, nil)
		close(stuck)
		advance(time.Minute)
		if g := w.Current().GPUs; len(g) != 2 || g[0].Health != compute.HealthOK {
			t.Errorf("afterwards: %+v", g)
		}
		again := make(chan struct{})
		source.set(devices, nil, again)
		advance(time.Minute)
		stop()
		close(again)
	})
}

// TestEngineFaultIsInTheInventory has a node offer something else, which makes another inventory.
func TestEngineFaultIsInTheInventory(t *testing.T) {
	offered := gpu.Offered{ScratchMiB: 7, Offers: []compute.Offer{compute.DockerOffer(true)}}
	w := gpu.NewWatcher(gpu.WatcherConfig{Source: &plug{}, Offers: func() gpu.Offered { return offered }})
	last := compute.Inventory{}
	for _, fault := range []string{"", "silent", "silent since then", ""} {
		offered.EngineFault = fault
		w.Poll(t.Context())
		now := w.Current()
		if now.Version <= last.Version || now.EngineFault != fault || now.ScratchMiB != 7 || len(now.Offers) != 1 {
			t.Errorf("fault %q: %+v after %+v", fault, now, last)
		}
		w.Poll(t.Context())
		if again := w.Current(); again.Version != now.Version {
			t.Errorf("fault %q: nothing has changed, and the version is %d after %d", fault, again.Version, now.Version)
		}
		last = now
	}
}

// TestUnplug takes a device out of a static file and waits for the inventory,
// in real time.
func TestUnplug(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpus.yaml")
	mustWrite(t, path, twoDevices)
	w := gpu.NewWatcher(gpu.WatcherConfig{
		Source:   mustOpen(t, gpu.Config{Source: gpu.SourceFile, File: path}),
		Interval: 10 * time.Millisecond,
	})
	stop := goRun(t, w.Run)
	defer stop()
	waitFor(t, w, func(i compute.Inventory) bool { return len(i.GPUs) == 2 })
	plugged := w.Current()
	mustWrite(t, path, "- {id: GPU-1, model: NVIDIA L40S, vram_mib: 46068}\n")
	waitFor(t, w, func(i compute.Inventory) bool { return len(i.GPUs) == 1 })
	if now := w.Current(); now.Version <= plugged.Version || now.GPUs[0].ID != "GPU-1" {
		t.Errorf("unplugged: %+v", now)
	}
	mustWrite(t, path, twoDevices)
	waitFor(t, w, func(i compute.Inventory) bool { return len(i.GPUs) == 2 })
}

// waitFor waits until the watcher's inventory is as wanted.
func waitFor(t *testing.T, w *gpu.Watcher, ok func(compute.Inventory) bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !ok(w.Current()) {
		select {
		case <-w.Changed():
		case <-deadline:
			t.Fatalf("after 30 s: %+v", w.Current())
		}
	}
}
