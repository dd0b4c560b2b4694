package gpu_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"berth/compute"
	"berth/gpu"
)

// seen is a reading of one device at a second.
type seen struct {
	second     int
	util, watt float64
	usedMiB    int64
	joule      int64 // Value of its energy counter; negative for none.
}

// roundOf returns a round with the reading as that of every device.
func roundOf(v seen, devices ...compute.GPUID) map[compute.GPUID]gpu.Reading {
	round := map[compute.GPUID]gpu.Reading{}
	for _, id := range devices {
		round[id] = gpu.Reading{GPUSample: compute.GPUSample{
			GPU: id, At: compute.Instant(1).Add(time.Duration(v.second) * time.Second),
			UtilPercent: v.util, PowerWatt: v.watt, UsedMiB: v.usedMiB, EnergyMilliJ: max(v.joule*1000, -1),
		}}
	}
	return round
}

func TestTally(t *testing.T) {
	one := []compute.GPUShare{{GPU: "a", Milli: 1000}}
	two := []compute.GPUShare{{GPU: "a", Milli: 1000}, {GPU: "b", Milli: 1000}}
	half := []compute.GPUShare{{GPU: "a", Milli: 500}}
	for _, test := range []struct {
		name     string
		shares   []compute.GPUShare
		readings []seen
		end      int
		want     compute.Usage // Without its samples.
	}{
		{
			"never read", one, nil, 10,
			compute.Usage{GPUUtilPercent: compute.GPUUnknown, GPUMemoryMiB: compute.GPUUnknown},
		},
		{
			"a slice, of which only the memory is told", one,
			[]seen{{0, -1, -1, 700, -1}, {3, -1, -1, 900, -1}},
			3,
			compute.Usage{GPUUtilPercent: compute.GPUUnknown, GPUMemoryMiB: 900},
		},
		{
			"no memory told", one,
			[]seen{{0, 30, -1, -1, -1}, {3, 30, -1, -1, -1}},
			3,
			compute.Usage{GPUUtilPercent: 30, GPUMemoryMiB: compute.GPUUnknown},
		},
		{
			"a counter, the rest at the mean power", one,
			[]seen{{1, 0, 100, 5, 1000}, {4, 100, 300, 9, 1900}, {7, 100, 300, 7, 2800}},
			8,
			compute.Usage{GPUUtilPercent: 86, GPUMemoryMiB: 9, PowerMilliW: 271_429, EnergyMilliJ: 1_800_000 + 2*271_429 - 1},
		},
		{
			"power by time", one,
			[]seen{{0, 0, 50, 1, -1}, {4, 50, 200, 1, -1}},
			5,
			compute.Usage{GPUUtilPercent: 50, GPUMemoryMiB: 1, PowerMilliW: 200_000, EnergyMilliJ: 1_000_000},
		},
		{
			"looked at once, as it started", one,
			[]seen{{0, 20, 60, 3, 77}},
			2,
			compute.Usage{GPUUtilPercent: 20, GPUMemoryMiB: 3, PowerMilliW: 60_000, EnergyMilliJ: 120_000},
		},
		{
			"two devices", two,
			[]seen{{0, 0, 50, 1, 0}, {4, 50, 200, 6, 800}},
			4,
			compute.Usage{GPUUtilPercent: 50, GPUMemoryMiB: 12, PowerMilliW: 400_000, EnergyMilliJ: 1_600_000},
		},
		{
			"half a device", half,
			[]seen{{0, 0, 50, 1, 0}, {4, 50, 200, 6, 800}},
			4,
			compute.Usage{GPUUtilPercent: 50, GPUMemoryMiB: 6, PowerMilliW: 100_000, EnergyMilliJ: 400_000},
		},
		{
			"no power, no counter", one,
			[]seen{{0, 10, -1, 4, -1}, {3, 10, -1, 4, -1}},
			3,
			compute.Usage{GPUUtilPercent: 10, GPUMemoryMiB: 4},
		},
		{
			"watched too late", one,
			[]seen{{11, 50, 100, 1, 0}, {14, 50, 100, 1, 300}},
			15,
			compute.Usage{GPUUtilPercent: 50, GPUMemoryMiB: 1, PowerMilliW: 100_000},
		},
		{
			"not watched to the end", one,
			[]seen{{0, 50, 100, 1, 0}, {3, 50, 100, 1, 300}},
			20,
			compute.Usage{GPUUtilPercent: 50, GPUMemoryMiB: 1, PowerMilliW: 100_000},
		},
		{
			"a gap, counted", one,
			[]seen{{0, 50, 100, 1, 0}, {30, 50, 100, 1, 4000}},
			30,
			compute.Usage{GPUUtilPercent: 50, GPUMemoryMiB: 1, PowerMilliW: 100_000, EnergyMilliJ: 4_000_000},
		},
		{
			"a gap, not counted", one,
			[]seen{{0, 50, 100, 1, -1}, {30, 50, 100, 1, -1}},
			30,
			compute.Usage{GPUUtilPercent: 50, GPUMemoryMiB: 1, PowerMilliW: 100_000},
		},
		{
			"watched from the second hour on", one,
			[]seen{{3600, 0, 50, 1, -1}, {3610, 100, 150, 1, -1}},
			3610,
			compute.Usage{GPUUtilPercent: 50, GPUMemoryMiB: 1, PowerMilliW: 100_000},
		},
		{
			"a counter that was reset", one,
			[]seen{{0, 50, 100, 1, 900}, {3, 50, 100, 1, 4}},
			3,
			compute.Usage{GPUUtilPercent: 50, GPUMemoryMiB: 1, PowerMilliW: 100_000, EnergyMilliJ: 300_000},
		},
	} {
		tally := gpu.NewTally(test.shares, 1)
		for _, v := range test.readings {
			tally.Add(roundOf(v, "a", "b"))
		}
		got := tally.Usage(compute.Instant(1).Add(time.Duration(test.end) * time.Second))
		if len(got.Samples) != len(test.readings) {
			t.Errorf("%s: %d samples of %d readings", test.name, len(got.Samples), len(test.readings))
		}
		if got.GPUUtilPercent != test.want.GPUUtilPercent || got.GPUMemoryMiB != test.want.GPUMemoryMiB ||
			got.PowerMilliW != test.want.PowerMilliW || got.EnergyMilliJ != test.want.EnergyMilliJ {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

// TestTallyWantsAllDevices holds that a round without one of the GPUs is none.
func TestTallyWantsAllDevices(t *testing.T) {
	tally := gpu.NewTally([]compute.GPUShare{{GPU: "a", Milli: 1000}, {GPU: "b", Milli: 1000}}, 1)
	tally.Add(roundOf(seen{1, 50, 100, 1, 1}, "a"))
	if u := tally.Usage(2); len(u.Samples) != 0 || u.PowerMilliW != 0 {
		t.Errorf("half a round counts: %+v", u)
	}
}

// TestTallyThinsOut holds that the series stays bounded, begins with the first
// reading, and is even in time and up to date however long the attempt runs.
func TestTallyThinsOut(t *testing.T) {
	tally := gpu.NewTally([]compute.GPUShare{{GPU: "a", Milli: 1000}}, 1)
	for n := range 5000 {
		tally.Add(roundOf(seen{n, 1, 1, 1, 1}, "a"))
		points := tally.Usage(compute.Instant(1).Add(time.Duration(n) * time.Second)).Samples
		if len(points) > compute.MaxUsageSamples || n >= compute.MaxUsageSamples && len(points) <= compute.MaxUsageSamples/2 {
			t.Fatalf("%d samples of %d readings", len(points), n+1)
		}
		step := int64(1000)
		if len(points) > 1 {
			step = points[1].AtMs
		}
		for i, p := range points {
			if p.AtMs != int64(i)*step {
				t.Fatalf("of %d readings sample %d is at %d ms, the step is %d", n+1, i, p.AtMs, step)
			}
		}
		if late := int64(n)*1000 - points[len(points)-1].AtMs; late >= step {
			t.Fatalf("of %d readings the last sample is %d ms old, the step is %d", n+1, late, step)
		}
	}
}

// TestWatch holds that the devices of an attempt are read as it starts and as it ends,
// between the sampler's own rounds, and no more after its end.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		devices := mustSimulate(t, "h100:1")
		s := gpu.NewSampler(gpu.SamplerConfig{
			Source: &plug{}, Devices: func() []compute.GPU { return devices }, Interval: time.Hour,
		})
		s.Poll(t.Context()) // Nobody reads: it gives up.
		stop := goRun(t, s.Run)
		defer stop()
		synctest.Wait()
		tally := s.Watch([]compute.GPUShare{{GPU: devices[0].ID, Milli: 1000}}, compute.InstantOf(time.Now()))
		advance(2 * time.Second)
		s.Poll(context.Background())
		u := s.Unwatch(tally, compute.InstantOf(time.Now()))
		if len(u.Samples) != 2 || u.Samples[1].AtMs != 2000 {
			t.Errorf("got %+v, want readings at 0 and 2 s", u.Samples)
		}
		s.Poll(context.Background())
		if again := s.Unwatch(tally, compute.InstantOf(time.Now())); len(again.Samples) != 2 {
			t.Errorf("an ended tally goes on: %+v", again.Samples)
		}
		if kept := s.Since(devices[0].ID, 0); len(kept) != 1 {
			t.Errorf("%d samples kept, want those of regular rounds alone", len(kept))
		}
	})
}
