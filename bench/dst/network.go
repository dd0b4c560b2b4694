package dst

import "time"

// outside is the endpoint of clients, which nothing cuts off.
const outside = -1

// network is what stands between endpoints: delay, loss, repetition, a new
// order, and cuts.
type network struct {
	calm     bool              // No more faults.
	isolated []time.Duration   // By endpoint: until when nothing passes.
	mute     []time.Duration   // By endpoint: until when nothing passes that it sends.
	held     []time.Duration   // By endpoint: until when what is sent to it waits.
	cut      [][]time.Duration // By endpoint and endpoint: until when nothing passes, one way.
}

func newNetwork(n int) network {
	net := network{
		isolated: make([]time.Duration, n), mute: make([]time.Duration, n), held: make([]time.Duration, n),
		cut: make([][]time.Duration, n),
	}
	for i := range net.cut {
		net.cut[i] = make([]time.Duration, n)
	}
	return net
}

// reaches reports whether what one endpoint sends arrives at the other.
func (w *world) reaches(from, to int) bool {
	switch {
	case w.net.calm || from == to:
		return true
	case from == outside:
		return w.net.isolated[to] <= w.now
	case w.net.mute[from] > w.now:
		return false
	case to == outside:
		return w.net.isolated[from] <= w.now
	}
	return w.net.isolated[from] <= w.now && w.net.isolated[to] <= w.now && w.net.cut[from][to] <= w.now
}

// connected reports whether two endpoints hear each other.
func (w *world) connected(a, b int) bool { return w.reaches(a, b) && w.reaches(b, a) }

// send has fn happen at an endpoint whose process is up, unless the message is
// lost; sometimes it happens twice.
func (w *world) send(from, to int, fn func()) {
	copies := 1
	if !w.net.calm && from != to {
		switch {
		case w.happens(0.01) || !w.reaches(from, to):
			w.report.Dropped++
			return
		case w.happens(0.02):
			copies = 2
			w.report.Duplicated++
		}
	}
	for range copies {
		w.after(w.delay(from, to), func() {
			if w.reaches(from, to) && (to == outside || w.machines[to].up) {
				fn()
			}
		})
	}
}

// delay returns how long a message is on its way. Now and then it is long, so
// that later ones pass it.
func (w *world) delay(from, to int) time.Duration {
	switch {
	case from == to:
		return 20 * time.Microsecond
	case !w.net.calm && to != outside && w.net.held[to] > w.now:
		return w.net.held[to] - w.now + w.between(200*time.Microsecond, 3*time.Millisecond)
	case !w.net.calm && w.happens(0.003):
		return w.between(time.Second, time.Minute)
	case !w.net.calm && w.happens(0.03):
		return w.between(10*time.Millisecond, time.Second)
	}
	return w.between(200*time.Microsecond, 3*time.Millisecond)
}
