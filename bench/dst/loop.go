package dst

import (
	"math/rand/v2"
	"time"
)

// event is an event at an instant of virtual time.
type event struct {
	at  time.Duration
	seq uint64 // Events of one instant run in order of creation.
	fn  func()
}

// loop is the event loop in virtual time. One goroutine and one random source
// make a seed determine everything.
type loop struct {
	now    time.Duration
	seq    uint64
	done   uint64 // The number of past events.
	heap   []event
	random *rand.Rand
}

func newLoop(seed uint64) loop {
	return loop{random: rand.New(rand.NewPCG(seed, 0x6265727468))} //nolint:gosec // Randomness that replays.
}

func before(a, b *event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// after runs fn after d.
func (l *loop) after(d time.Duration, fn func()) {
	l.seq++
	l.heap = append(l.heap, event{l.now + max(d, 0), l.seq, fn})
	for i := len(l.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !before(&l.heap[i], &l.heap[parent]) {
			return
		}
		l.heap[i], l.heap[parent] = l.heap[parent], l.heap[i]
		i = parent
	}
}

// pop removes the next event.
func (l *loop) pop() event {
	top, last := l.heap[0], len(l.heap)-1
	l.heap[0] = l.heap[last]
	l.heap[last] = event{}
	l.heap = l.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return top
		}
		if child+1 < last && before(&l.heap[child+1], &l.heap[child]) {
			child++
		}
		if !before(&l.heap[child], &l.heap[i]) {
			return top
		}
		l.heap[i], l.heap[child] = l.heap[child], l.heap[i]
		i = child
	}
}

// step runs the next event if it is due by until.
func (l *loop) step(until time.Duration) bool {
	if len(l.heap) == 0 || l.heap[0].at > until {
		return false
	}
	e := l.pop()
	l.now = e.at
	l.done++
	e.fn()
	return true
}

// between returns a random time in a range.
func (l *loop) between(low, high time.Duration) time.Duration {
	return low + time.Duration(l.random.Int64N(int64(high-low)+1))
}

// exponential returns an exponentially distributed random time.
func (l *loop) exponential(mean time.Duration) time.Duration {
	return time.Duration(l.random.ExpFloat64() * float64(mean))
}

// happens returns true with probability p.
func (l *loop) happens(p float64) bool { return l.random.Float64() < p }

// fsync returns the duration of an fsync: mostly short.
func (l *loop) fsync() time.Duration {
	if l.happens(0.01) {
		return l.between(50*time.Millisecond, 3*time.Second)
	}
	return l.between(500*time.Microsecond, 10*time.Millisecond)
}
