package gpu

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"berth/compute"
)

// DefaultSampleInterval is how often a sampler reads every device.
const DefaultSampleInterval = 3 * time.Second

// MaxSamples is how many samples of each device are kept: one hour of them at
// the default interval.
const MaxSamples = 1200

// SamplerConfig configures a sampler.
type SamplerConfig struct {
	Source   Source
	Devices  func() []compute.GPU // Those to read.
	Interval time.Duration        // 0 is DefaultSampleInterval.
	Logger   *slog.Logger         // Nil discards.
}

// Sampler keeps the last readings of each device.
type Sampler struct {
	cfg    SamplerConfig
	log    *slog.Logger
	guard  guard[map[compute.GPUID]Reading]
	hangs  bool
	silent map[compute.GPUID]bool // Devices that the last round could not read.
	wake   chan struct{}          // Requests a round before the next tick.

	mu      sync.Mutex
	last    map[compute.GPUID]Reading
	rings   map[compute.GPUID]*ring
	tallies map[*Tally]bool // Tallies of running attempts.
	round   chan struct{}   // Closed at the end of the next round.
}

// ring is the newest samples of one device.
type ring struct {
	samples []compute.GPUSample
	at      int // Position of the next sample, once the ring is full.
	missed  int // Rounds since the last one.
}

// NewSampler returns a sampler without readings.
func NewSampler(cfg SamplerConfig) *Sampler {
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultSampleInterval
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Sampler{
		cfg:     cfg,
		log:     cfg.Logger.With("part", "gpu"),
		wake:    make(chan struct{}, 1),
		rings:   make(map[compute.GPUID]*ring),
		tallies: make(map[*Tally]bool),
		round:   make(chan struct{}),
	}
}

// Run reads every device at once, then at each interval and on request, until
// ctx ends.
func (s *Sampler) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.cfg.Interval)
	defer ticker.Stop()
	for regular := true; ; {
		s.sample(ctx, regular)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			regular = true
		case <-s.wake:
			regular = false
		}
	}
}

// Last returns the newest reading of the device, if the last round had one.
func (s *Sampler) Last(id compute.GPUID) (Reading, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.last[id]
	return r, ok
}

// Since returns the samples of the device that are not older than from, at most
// MaxSamples, oldest first.
func (s *Sampler) Since(id compute.GPUID, from compute.Instant) []compute.GPUSample {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rings[id]
	if r == nil {
		return nil
	}
	ordered := slices.Concat(r.samples[r.at:], r.samples[:r.at])
	return slices.DeleteFunc(ordered, func(v compute.GPUSample) bool { return v.At < from })
}

// sample takes one round of readings.
func (s *Sampler) sample(ctx context.Context, regular bool) {
	devices := s.cfg.Devices()
	readings, err := s.guard.do(ctx, func() map[compute.GPUID]Reading { return s.readAll(devices) })
	if ctx.Err() != nil {
		return
	}
	if hangs := err != nil; hangs != s.hangs {
		s.hangs = hangs
		if hangs {
			s.log.Error("gpu readings stopped", "err", err)
		} else {
			s.log.Info("gpu readings go on")
		}
	}
	s.keep(readings, regular)
}

// readAll reads each device. A device that does not answer has no reading.
func (s *Sampler) readAll(devices []compute.GPU) map[compute.GPUID]Reading {
	readings := make(map[compute.GPUID]Reading, len(devices))
	silent := make(map[compute.GPUID]bool)
	for _, device := range devices {
		r, err := s.cfg.Source.Read(device.ID)
		if err == nil {
			readings[device.ID] = r
			continue
		}
		silent[device.ID] = true
		if !s.silent[device.ID] {
			s.log.Warn("gpu cannot be read", "gpu", device.ID, "err", err)
		}
	}
	s.silent = silent
	return readings
}

// keep stores the readings as the last ones and tallies them. The readings of a
// regular round become samples. Devices without a reading for as long as
// samples are kept are forgotten.
func (s *Sampler) keep(readings map[compute.GPUID]Reading, regular bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = readings
	for t := range s.tallies {
		t.Add(readings)
	}
	close(s.round)
	s.round = make(chan struct{})
	if !regular {
		return
	}
	for id, r := range readings {
		if s.rings[id] == nil {
			s.rings[id] = new(ring)
		}
		s.rings[id].add(r.GPUSample)
	}
	maps.DeleteFunc(s.rings, func(_ compute.GPUID, r *ring) bool {
		r.missed++
		return r.missed > MaxSamples
	})
}

// add replaces the oldest sample.
func (r *ring) add(sample compute.GPUSample) {
	r.missed = 0
	if len(r.samples) < MaxSamples {
		r.samples = append(r.samples, sample)
		return
	}
	r.samples[r.at] = sample
	r.at = (r.at + 1) % MaxSamples
}
