package series

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"syscall"
	"time"

	"berth/compute"
	"berth/loop"
)

// Config holds the settings and dependencies of a Recorder.
type Config struct {
	Store *Store
	// Work returns the live attempts of this node.
	Work func() []compute.Work
	// Resources returns the CPU time of an attempt so far and its memory use in
	// bytes; not ok if it does not run.
	Resources func(compute.Work) (cpu time.Duration, memory int64, ok bool)
	// Poll reads all GPUs now, and Last returns the newest reading of one.
	Poll   func(context.Context)
	Last   func(compute.GPUID) (compute.GPUSample, bool)
	Now    func() time.Time
	Logger *slog.Logger
}

// Recorder measures the live attempts of a node.
type Recorder struct {
	cfg  Config
	live map[attempt]*watched
	full bool // The disk was full at the last point.
}

type attempt struct {
	execution compute.ExecutionID
	epoch     uint64
}

// watched is a live attempt.
type watched struct {
	w    *writer
	at   time.Time // When it was last measured.
	cpu  time.Duration
	seen bool // In this round.
}

// NewRecorder returns a Recorder.
func NewRecorder(cfg Config) *Recorder { return &Recorder{cfg: cfg, live: map[attempt]*watched{}} }

// Interval is how often attempts are measured.
const Interval = time.Second

// Run measures until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	loop.Every(ctx, Interval, func() { r.Round(ctx) })
	for _, l := range r.live {
		r.report(l.w.end())
	}
	return nil
}

// Round measures every live attempt once.
func (r *Recorder) Round(ctx context.Context) {
	work := r.cfg.Work()
	for _, w := range work {
		if w.Attempt.Started && len(w.Attempt.GPUs) > 0 {
			r.cfg.Poll(ctx)
			break
		}
	}
	for _, l := range r.live {
		l.seen = false
	}
	for _, w := range work {
		if w.Attempt.Started && !w.Attempt.Ended {
			r.report(r.measure(w))
		}
	}
	for k, l := range r.live {
		if !l.seen {
			r.report(l.w.end())
			delete(r.live, k)
		}
	}
}

// report logs that metrics cannot be written, once until they can be again.
func (r *Recorder) report(err error) {
	switch full := errors.Is(err, syscall.ENOSPC); {
	case err == nil:
		r.full = false
	case !full:
		r.cfg.Logger.Debug("metrics not written", "err", err) // Its attempt was removed meanwhile.
	case !r.full:
		r.full = true
		r.cfg.Logger.Warn("metrics not written", "err", err)
	}
}

// measure adds a point of one attempt.
func (r *Recorder) measure(w compute.Work) error {
	key := attempt{w.Attempt.Execution, w.Attempt.Epoch}
	l, now := r.live[key], r.cfg.Now()
	cpu, memory, ok := r.cfg.Resources(w)
	if l == nil {
		file, err := newWriter(r.cfg.Store.path(key.execution, key.epoch))
		if err != nil {
			return err
		}
		l = &watched{w: file, at: now, cpu: cpu}
		r.live[key] = l
	}
	l.seen = true
	p := Unknown(compute.InstantOf(now))
	if ok {
		p.Values[MemoryUsedBytes] = float64(memory)
		if took := now.Sub(l.at).Seconds(); took > 0 && w.Execution.Request.VCPUMilli > 0 {
			asked := float64(w.Execution.Request.VCPUMilli) / 1000
			p.Values[CPUPercent] = 100 * max(0, (cpu-l.cpu).Seconds()) / took / asked
		}
	}
	p.Values[MemoryTotalBytes] = float64(w.Execution.Request.MemoryMiB) * (1 << 20)
	r.addGPUs(&p, w)
	l.at, l.cpu = now, cpu
	return l.w.add(p)
}

// addGPUs adds the values of an attempt's GPUs.
func (r *Recorder) addGPUs(p *Point, w compute.Work) {
	n := float64(len(w.Attempt.GPUs))
	add := func(m Metric, value float64) { // NaN and values that the device does not report stay unknown.
		if value < 0 {
			value = math.NaN()
		}
		p.Values[m] += value
	}
	var used, free float64
	for i, share := range w.Attempt.GPUs {
		g, ok := r.cfg.Last(share.GPU)
		if !ok {
			*p = withoutGPUs(*p)
			return
		}
		if i == 0 {
			for m := GPUUtilPercent; m <= PCIeTxBytesPerS; m++ {
				p.Values[m] = 0
			}
		}
		part := float64(share.Milli) / compute.WholeGPU
		add(GPUUtilPercent, g.UtilPercent/n)
		add(GPUPowerWatt, g.PowerWatt*part)
		add(GPUPowerLimitWatt, g.PowerLimitWatt*part)
		add(GPUClockSMMHz, g.SMClockMHz/n)
		add(GPUClockMemoryMHz, g.MemClockMHz/n)
		add(PCIeRxBytesPerS, g.PCIeRxBytesPerS)
		add(PCIeTxBytesPerS, g.PCIeTxBytesPerS)
		hottest := p.Values[GPUTemperatureC]
		p.Values[GPUTemperatureC] = 0
		add(GPUTemperatureC, g.TemperatureC)
		p.Values[GPUTemperatureC] = max(p.Values[GPUTemperatureC], hottest) // NaN stays.
		used, free = used+float64(g.UsedMiB), free+float64(g.FreeMiB)
	}
	if n > 0 && used >= 0 && used+free > 0 {
		p.Values[GPUMemoryPercent] = 100 * used / (used + free)
	}
}

// withoutGPUs returns p with its values of GPUs unknown.
func withoutGPUs(p Point) Point {
	for m := GPUUtilPercent; m <= PCIeTxBytesPerS; m++ {
		p.Values[m] = math.NaN()
	}
	return p
}
