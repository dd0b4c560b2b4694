package gpu

import (
	"math"
	"time"

	"berth/compute"
)

// tallyGap is how long GPUs may go without a reading and still count as
// observed: three rounds at the default interval.
const tallyGap = 10 * time.Second

// Tally sums the readings of the GPUs of one attempt: the mean of their
// utilization and power, the highest memory, the energy, and a series of
// samples that is thinned as it grows. A reading stands for the time since the
// one before it, tallyGap at most, so rounds may be uneven.
//
// Power and energy of a GPU count by the part that the attempt holds.
// Utilization and memory are those of the device, because drivers do not
// attribute them. A Tally must not be used by two goroutines at once.
type Tally struct {
	shares []compute.GPUShare
	from   compute.Instant

	first, last total
	readings    int
	edge, gap   bool // Not observed from the start, or with a gap since.

	util, watt mean
	peakMiB    int64
	points     []compute.UsageSample
	stride     int // Every so many readings one becomes a sample.
}

// total is one reading of all GPUs together. It is negative where one of them
// does not report a value.
type total struct {
	at         compute.Instant
	util, watt float64
	usedMiB    int64
	milliJoule int64 // A counter.
}

// NewTally returns a tally of the GPUs that shares names, for an attempt whose
// code started at from.
func NewTally(shares []compute.GPUShare, from compute.Instant) *Tally {
	return &Tally{shares: shares, from: from, stride: 1, peakMiB: compute.GPUUnknown}
}

// Add counts one round of readings. It ignores a round that lacks one of the
// GPUs or is not newer than the last one.
func (t *Tally) Add(round map[compute.GPUID]Reading) {
	l, ok := totalOf(t.shares, round)
	if !ok || t.readings > 0 && l.at <= t.last.at {
		return
	}
	since := t.last.at
	if t.readings == 0 {
		t.first, since = l, t.from
	}
	step := max(l.at.Sub(since), 0)
	if step > tallyGap {
		t.edge, t.gap = t.edge || t.readings == 0, true
	}
	known := min(step, tallyGap) // A reading covers no longer time before it.
	t.util.add(l.util, known)
	t.watt.add(l.watt, known)
	t.peakMiB = max(t.peakMiB, l.usedMiB)
	t.keep(l)
	t.last = l
	t.readings++
}

// totalOf combines the readings of all shares.
func totalOf(shares []compute.GPUShare, round map[compute.GPUID]Reading) (total, bool) {
	var l total
	for _, share := range shares {
		r, ok := round[share.GPU]
		if !ok {
			return total{}, false
		}
		part := float64(share.Milli) / compute.WholeGPU
		l.at = max(l.at, r.At)
		l.util = plus(l.util, r.UtilPercent, 1/float64(len(shares)))
		l.watt = plus(l.watt, r.PowerWatt, part)
		l.usedMiB = int64(plus(float64(l.usedMiB), float64(r.UsedMiB), 1))
		l.milliJoule = int64(plus(float64(l.milliJoule), float64(r.EnergyMilliJ), part))
	}
	return l, len(shares) > 0
}

// plus returns sum + part * value, -1 when either is unknown.
func plus(sum, value, part float64) float64 {
	if sum < 0 || value < 0 {
		return -1
	}
	return sum + part*value
}

// keep makes the reading a sample. At the limit every second sample is dropped,
// and from then on half as many readings become samples.
func (t *Tally) keep(l total) {
	if t.readings%t.stride != 0 {
		return
	}
	if len(t.points) == compute.MaxUsageSamples {
		for i := range compute.MaxUsageSamples / 2 {
			t.points[i] = t.points[2*i]
		}
		t.points = t.points[:compute.MaxUsageSamples/2]
		t.stride *= 2
	}
	t.points = append(t.points, compute.UsageSample{
		AtMs: max(l.at.Sub(t.from), 0).Milliseconds(), UtilPercent: int(math.Round(l.util)),
		MemoryMiB: l.usedMiB, PowerWatt: int(math.Round(l.watt)),
	})
}

// Usage returns the usage of the GPUs until the code ended, without anything
// but its GPU part. Utilization and memory are negative where a GPU did not
// report them, as a MIG slice does its utilization. The energy is the
// difference of the counters where devices have them, plus the mean power for
// the time at both ends that the readings do not cover. Without counters it is
// the mean power over all of the time. It is 0, for unknown, when the GPUs
// report no power or were not observed all the time.
func (t *Tally) Usage(end compute.Instant) compute.Usage {
	u := compute.Usage{GPUUtilPercent: compute.GPUUnknown, GPUMemoryMiB: compute.GPUUnknown}
	if t.readings == 0 {
		return u
	}
	if util := t.util.value(); util >= 0 {
		u.GPUUtilPercent = int(math.Round(util))
	}
	u.GPUMemoryMiB = t.peakMiB
	u.Samples = append(u.Samples, t.points...)
	took, late := end.Sub(t.from), end.Sub(t.last.at)
	for i := range u.Samples { // The last reading may come after the end.
		u.Samples[i].AtMs = min(u.Samples[i].AtMs, max(took, 0).Milliseconds())
	}
	watt := t.watt.value()
	if watt < 0 {
		return u
	}
	u.PowerMilliW = int64(math.Round(watt * 1000))
	counted := t.last.milliJoule - t.first.milliJoule
	switch {
	case t.edge || late > tallyGap:
	case t.first.milliJoule >= 0 && t.last.milliJoule >= 0 && counted >= 0:
		open := max(t.first.at.Sub(t.from), 0) + max(late, 0)
		u.EnergyMilliJ = counted + int64(math.Round(watt*1000*open.Seconds()))
	case !t.gap:
		u.EnergyMilliJ = int64(math.Round(watt * 1000 * took.Seconds()))
	}
	return u
}

// mean is a mean over time. It is negative once a value was negative.
type mean struct {
	sum    float64 // Sum of values times seconds.
	took   time.Duration
	newest float64
	broken bool
}

func (m *mean) add(value float64, d time.Duration) {
	m.broken = m.broken || value < 0
	m.sum += value * d.Seconds()
	m.took += d
	m.newest = value
}

// value returns the mean. If the values took no time, it is the newest value.
func (m *mean) value() float64 {
	switch {
	case m.broken:
		return -1
	case m.took == 0:
		return m.newest
	}
	return m.sum / m.took.Seconds()
}
