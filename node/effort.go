package node

import (
	"context"
	"os"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"berth/loop"
	"berth/timerslack"
)

const (
	effortPeriod = 500 * time.Millisecond // How often the processor time of the process is read: with other loops.
	busyShare    = 10                     // A process that takes more than this part of a processor works: a tenth.
)

// pace is whether this process rests, which those that give it work can end at once.
type pace struct {
	rests   atomic.Bool
	crowded atomic.Bool   // Several requests came at once.
	wake    chan struct{} // Something happened.
}

func newPace() *pace { return &pace{wake: make(chan struct{}, 1)} }

// hurry ends a rest: several requests came at once. The first of them would otherwise keep
// heartbeats from the one processor.
func (p *pace) hurry() {
	if !p.rests.Load() || p.crowded.Swap(true) {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default: // A signal is pending.
	}
}

// tuneThreads has the Go runtime wake fewer threads. At rest a node has one processor: each message
// that came woke a thread for another one, to look for more work. While it works, its monitor
// thread wakes less often. The operator's GOMAXPROCS comes first.
func (n *Node) tuneThreads(ctx context.Context) {
	slack := true
	n.pace.follow(ctx, func(works bool) {
		if os.Getenv("GOMAXPROCS") == "" {
			setProcessors(works)
		}
		if !slack {
			return
		}
		if err := timerslack.OfMonitor(slackOf(works)); err != nil {
			slack = false
			n.logger.Info("the Go runtime wakes this node more often than it must",
				"hint", "it needs the capability CAP_SYS_NICE", "err", err)
		}
	})
}

// setProcessors lets goroutines run on all processors that the process may use, or on one.
func setProcessors(all bool) {
	if all {
		runtime.SetDefaultGOMAXPROCS()
		return
	}
	runtime.GOMAXPROCS(1)
}

// slackOf returns the slack of the monitor thread. At rest, where a collection comes now and then,
// a coarse one took more of the processors.
func slackOf(works bool) time.Duration {
	if works {
		return timerslack.Node
	}
	return timerslack.Default
}

// follow calls set with whether this process works, at first, at each change, and after each
// garbage collection while it works: the monitor starts threads that have its slack. It returns
// when ctx ends.
func (p *pace) follow(ctx context.Context, set func(works bool)) {
	awaitGC(ctx, p.wake)
	cycles := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	e := effort{busyUntil: time.Now().Add(calmPeriod)} //nolint:forbidigo // A stopwatch. A start is work too.
	works := false
	loop.OnChange(ctx, effortPeriod, func() <-chan struct{} { return p.wake }, func() {
		var used unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_SELF, &used) // It cannot fail.
		metrics.Read(cycles)
		now := time.Now() //nolint:forbidigo // A stopwatch.
		if p.crowded.Swap(false) {
			e.busyUntil = now.Add(calmPeriod)
		}
		was := works
		var again bool
		works, again = e.follow(now, time.Duration(used.Utime.Nano()+used.Stime.Nano()), cycles[0].Value.Uint64())
		if works != was || works && again {
			set(works)
		}
		p.rests.Store(!works)
	})
}

// effort tells a process that works from one at rest. It works from the second garbage collection
// within calmPeriod on, or once it took more than its share (busyShare) of a processor, until neither
// happened for calmPeriod.
type effort struct {
	busyUntil time.Time

	at   time.Time     // When the processor time
	used time.Duration // was this.

	cycles    uint64    // Garbage collections so far.
	collected time.Time // When there was one more.
}

// follow reports whether the process works, and whether garbage was collected since the last
// call.
func (e *effort) follow(now time.Time, used time.Duration, cycles uint64) (works, collected bool) {
	if collected = cycles != e.cycles; collected {
		if now.Sub(e.collected) < calmPeriod {
			e.busyUntil = now.Add(calmPeriod)
		}
		e.cycles, e.collected = cycles, now
	}
	if took := now.Sub(e.at); took >= effortPeriod/2 {
		if !e.at.IsZero() && (used-e.used)*busyShare > took {
			e.busyUntil = now.Add(calmPeriod)
		}
		e.at, e.used = now, used
	}
	return now.Before(e.busyUntil), collected
}
