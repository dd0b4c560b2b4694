package dst

import (
	"math/rand/v2"
	"time"
)

// event is something that happens at a moment of virtual time.
type event struct {
	at  time.Duration
	seq uint64 // Events of one moment happen in the order in which they were made.
	fn  func()
}

// loop is virtual time and all that is to happen in it. One goroutine and one
// source of chance make a seed say everything.
type loop struct {
	now    time.Duration
	seq    uint64
	done   uint64 // Events that happened.
	heap   []event
	random *rand.Rand
}

func newLoop(seed uint64) loop {
	return loop{random: rand.New(rand.NewPCG(seed, 0x6265727468))} //nolint:gosec // Chance that replays.
}

func before(a, b *event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// after has fn happen in a while.
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

// step lets the next event happen, if it is due by until.
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

// between returns a time from a range by chance.
func (l *loop) between(low, high time.Duration) time.Duration {
	return low + time.Duration(l.random.Int64N(int64(high-low)+1))
}

// exponential returns a time with a mean by chance.
func (l *loop) exponential(mean time.Duration) time.Duration {
	return time.Duration(l.random.ExpFloat64() * float64(mean))
}

// happens reports true with a probability.
func (l *loop) happens(p float64) bool { return l.random.Float64() < p }

// fsync returns what making bytes durable takes: mostly little.
func (l *loop) fsync() time.Duration {
	if l.happens(0.01) {
		return l.between(50*time.Millisecond, 3*time.Second)
	}
	return l.between(500*time.Microsecond, 10*time.Millisecond)
}
