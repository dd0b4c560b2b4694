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
	const second = time.Second
	rest := look{second, 20 * time.Millisecond, 0, false}
	for name, looks := range map[string][]look{
		"at rest":                        {rest, rest, rest},
		"one collection":                 {rest, {second, 0, 1, false}, rest},
		"two collections":                {rest, {second, 0, 1, false}, {9 * second, 0, 1, true}, {9 * second, 0, 0, true}, {second, 0, 0, false}},
		"two collections, far apart":     {rest, {second, 0, 1, false}, {10 * second, 0, 1, false}},
		"much of a processor":            {rest, {second, 260 * time.Millisecond, 0, true}, {9 * second, 0, 0, true}, {second, 0, 0, false}},
		"little of it":                   {rest, {second, 240 * time.Millisecond, 0, false}},
		"much of it, in a moment":        {rest, {second / 4, 200 * time.Millisecond, 1, false}, {second / 4, 0, 0, true}},
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

// TestFollowWork checks that a process which collects garbage works, and learns of each collection.
func TestFollowWork(t *testing.T) {
	set := make(chan bool)
	go followWork(t.Context(), func(works bool) {
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

// TestSetProcessors checks that a process at rest has one processor, and gets all back.
func TestSetProcessors(t *testing.T) {
	defer setProcessors(true)
	all := runtime.GOMAXPROCS(0)
	setProcessors(false)
	if got := runtime.GOMAXPROCS(0); got != 1 {
		t.Errorf("at rest it has %d processors", got)
	}
	setProcessors(true)
	if got := runtime.GOMAXPROCS(0); got != all {
		t.Errorf("at work it has %d processors of %d", got, all)
	}
}
