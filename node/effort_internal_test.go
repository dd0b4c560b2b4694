package node

import (
	"runtime"
	"testing"
	"time"
)

// TestEffort checks when a process works.
func TestEffort(t *testing.T) {
	type look struct {
		after  time.Duration // Since the one before.
		used   time.Duration // Processor time since then.
		cycles uint64        // Garbage collections since then.
		works  bool
	}
	const second = time.Second // More than effortPeriod.
	rest := look{second, 20 * time.Millisecond, 0, false}
	for name, looks := range map[string][]look{
		"at rest":                        {rest, rest, rest},
		"one collection":                 {rest, {second, 0, 1, false}, rest},
		"two collections":                {rest, {second, 0, 1, false}, {9 * second, 0, 1, true}, {9 * second, 0, 0, true}, {second, 0, 0, false}},
		"two collections, far apart":     {rest, {second, 0, 1, false}, {10 * second, 0, 1, false}},
		"much of a processor":            {rest, {second, 110 * time.Millisecond, 0, true}, {9 * second, 0, 0, true}, {second, 0, 0, false}},
		"little of it":                   {rest, {second, 90 * time.Millisecond, 0, false}},
		"much of it, in a moment":        {rest, {second / 8, 200 * time.Millisecond, 1, false}, {second / 8, 0, 0, true}},
		"the process's time before that": {{0, time.Hour, 5, false}, rest},
		"work goes on":                   {rest, {second, second, 0, true}, {5 * second, 4 * second, 0, true}, {9 * second, 0, 0, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var e effort
			now, used, cycles := time.Unix(1_000_000, 0), time.Duration(0), uint64(0)
			for i, l := range looks {
				now, used, cycles = now.Add(l.after), used+l.used, cycles+l.cycles
				works, collected := e.follow(now, used, cycles)
				if works != l.works || collected != (l.cycles > 0) {
					t.Errorf("look %d: works %t, collected %t", i, works, collected)
				}
			}
		})
	}
}

// TestPace checks that a process which collects garbage works, and learns of each collection.
func TestPace(t *testing.T) {
	set, p := make(chan bool), newPace()
	go p.follow(t.Context(), func(works bool) {
		select {
		case set <- works:
		case <-t.Context().Done():
		}
	})
	for range 3 { // The first one is the start.
		for got := false; !got; {
			select {
			case got = <-set:
			case <-time.After(10 * time.Millisecond):
				runtime.GC()
			}
		}
	}
}

// TestHurry checks that a crowd of requests wakes a process at rest, and no other.
func TestHurry(t *testing.T) {
	p := newPace()
	p.hurry()
	if len(p.wake) > 0 || p.crowded.Load() {
		t.Error("it does not rest and is woken")
	}
	p.rests.Store(true)
	for range 3 {
		p.hurry()
	}
	if len(p.wake) != 1 || !p.crowded.Load() {
		t.Error("it rests and is not woken")
	}
}

// TestSetProcessors checks that a process at rest has one processor, and gets all back.
func TestSetProcessors(t *testing.T) {
	setProcessors(true) // Whatever the environment wants.
	all := runtime.GOMAXPROCS(0)
	setProcessors(false)
	defer setProcessors(true)
	if got := runtime.GOMAXPROCS(0); got != 1 {
		t.Errorf("at rest it has %d processors", got)
	}
	setProcessors(true)
	if got := runtime.GOMAXPROCS(0); got != all {
		t.Errorf("at work it has %d processors of %d", got, all)
	}
}
