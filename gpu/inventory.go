package gpu

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/compute"
	"berth/loop"
)

// Declared resources per simulated device. Executions really get the
// smaller share that the machine has.
const (
	simulatedVCPUMilli = 8_000
	simulatedMemoryMiB = 64 << 10
)

// DefaultWatchInterval is how often a watcher polls its source.
const DefaultWatchInterval = time.Second

// WatcherConfig configures a watcher.
type WatcherConfig struct {
	Node      compute.NodeID
	Source    Source
	VCPUMilli int64            // vCPU that executions may use; 0 for all of the machine.
	MemoryMiB int64            // Memory that executions may use; 0 for all of the machine.
	Gaps      []compute.Gap    // Gaps of the node's sandbox; they never change.
	Offers    Offers           // Offers of the node; nil for none.
	Interval  time.Duration    // Between polls; 0 is DefaultWatchInterval.
	Now       func() time.Time // Nil is time.Now.
	Logger    *slog.Logger     // Nil discards.
}

// Offers returns what a node offers beside its capacity.
type Offers func() Offered

// Offered is what a node offers beside its capacity, as an inventory has it.
type Offered struct {
	ScratchMiB  int64
	Offers      []compute.Offer // Sorted.
	EngineFault string
}

// Watcher keeps the newest inventory of this node.
type Watcher struct {
	cfg     WatcherConfig
	log     *slog.Logger
	changed chan struct{}

	// polling serialises polls. It is held during each.
	polling sync.Mutex
	guard   guard[pollResult]
	fault   string // The last logged fault, so that each is logged once.

	mu      sync.Mutex
	current compute.Inventory
}

// pollResult is the answer of a source.
type pollResult struct {
	devices []compute.GPU
	err     error
}

// NewWatcher returns a watcher that has not polled yet.
func NewWatcher(cfg WatcherConfig) *Watcher {
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultWatchInterval
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Watcher{
		cfg:     cfg,
		log:     cfg.Logger.With("part", "gpu"),
		changed: make(chan struct{}, 1),
	}
}

// Current returns the newest inventory. Its version is 0 before the first poll.
// Its GPUs are shared: the caller must not write to them.
func (w *Watcher) Current() compute.Inventory {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

// Changed returns a channel that gets a value after each change, at most one at
// a time. It is for one receiver, which then calls Current.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Run polls at once and then at each interval, until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	loop.Every(ctx, w.cfg.Interval, func() { w.Poll(ctx) })
	return nil
}

// Poll polls the source once, so that a node can know its inventory before Run.
// When the source has a fault, which is logged, the last inventory stays. When
// the source hangs, its devices are marked as failed.
func (w *Watcher) Poll(ctx context.Context) {
	w.polling.Lock()
	defer w.polling.Unlock()
	seen, err := w.guard.do(ctx, func() pollResult {
		devices, err := w.cfg.Source.Devices()
		return pollResult{devices, err}
	})
	switch {
	case errors.Is(err, errNoAnswer):
		seen = pollResult{failed(w.Current().GPUs), err}
	case err != nil:
		return // The caller has stopped.
	}
	w.report(seen.err)
	w.take(seen.devices)
}

// report logs a fault when it is new, and when it is over.
func (w *Watcher) report(err error) {
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	if fault == w.fault {
		return
	}
	w.fault = fault
	if err == nil {
		w.log.Info("gpu source works again")
	} else {
		w.log.Error("gpu source fails", "err", err)
	}
}

// take makes the devices the inventory, with a new version if that changes
// anything.
func (w *Watcher) take(devices []compute.GPU) {
	next := w.inventory(devices)
	w.mu.Lock()
	last := w.current
	if last.Version != 0 && same(last, next) {
		w.mu.Unlock()
		return
	}
	// Versions rise across restarts too, without being kept on disk.
	next.Version = max(last.Version+1, uint64(w.cfg.Now().UnixMilli()))
	w.current = next
	w.mu.Unlock()
	w.logChange(last, next)
	select {
	case w.changed <- struct{}{}:
	default: // The receiver has yet to see an earlier one.
	}
}

// inventory returns the inventory of the node with the devices.
func (w *Watcher) inventory(devices []compute.GPU) compute.Inventory {
	vcpuMilli, memoryMiB := capacity(devices)
	if w.cfg.VCPUMilli > 0 {
		vcpuMilli = w.cfg.VCPUMilli
	}
	if w.cfg.MemoryMiB > 0 {
		memoryMiB = w.cfg.MemoryMiB
	}
	out := compute.Inventory{
		Node: w.cfg.Node, VCPUMilli: vcpuMilli, MemoryMiB: memoryMiB, GPUs: devices, Gaps: w.cfg.Gaps,
	}
	if w.cfg.Offers != nil {
		offered := w.cfg.Offers()
		out.ScratchMiB, out.Offers, out.EngineFault = offered.ScratchMiB, offered.Offers, offered.EngineFault
	}
	return out
}

// capacity returns the vCPU and memory that a node with the devices offers: the
// declared share of each device, slices not counted, when all are simulated,
// else that of the machine.
func capacity(devices []compute.GPU) (vcpuMilli, memoryMiB int64) {
	physical, n := false, int64(0)
	for _, g := range devices {
		physical = physical || !g.Simulated
		if g.Parent == "" {
			n++
		}
	}
	if n > 0 && !physical {
		return n * simulatedVCPUMilli, n * simulatedMemoryMiB
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		memoryMiB = int64(info.Totalram * uint64(info.Unit) >> 20)
	}
	return int64(runtime.NumCPU()) * 1000, memoryMiB
}

// same reports whether two inventories differ in their version only.
func same(a, b compute.Inventory) bool {
	return a.VCPUMilli == b.VCPUMilli && a.MemoryMiB == b.MemoryMiB && slices.Equal(a.GPUs, b.GPUs) &&
		a.ScratchMiB == b.ScratchMiB && slices.Equal(a.Offers, b.Offers) && a.EngineFault == b.EngineFault
}

// logChange logs the changes from last to next.
func (w *Watcher) logChange(last, next compute.Inventory) {
	for _, g := range next.GPUs {
		before, known := find(last.GPUs, g.ID)
		switch {
		case g.Health != compute.HealthOK && (!known || before.Health != g.Health):
			w.log.Warn("gpu failed", "gpu", g.ID, "status", g.Health)
		case !known:
			w.log.Info("gpu found", "gpu", g.ID)
		case g.Health == compute.HealthOK && before.Health != compute.HealthOK:
			w.log.Info("gpu recovered", "gpu", g.ID)
		}
	}
	for _, g := range last.GPUs {
		if _, still := find(next.GPUs, g.ID); !still {
			w.log.Warn("gpu gone", "gpu", g.ID)
		}
	}
}

// failed returns the devices, all marked as failed.
func failed(devices []compute.GPU) []compute.GPU {
	devices = slices.Clone(devices)
	for i := range devices {
		devices[i].Health = compute.HealthFailed
	}
	return devices
}
