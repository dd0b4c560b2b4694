package dst

import "time"

// outside is the clients' endpoint, which nothing cuts off.
const outside = -1

// network models the connections between endpoints: delay, loss, duplication,
// reordering and partitions.
type network struct {
	calm     bool              // No more faults.
	isolated []time.Duration   // By endpoint: isolated until then.
	mute     []time.Duration   // By endpoint: its messages are lost until then.
	held     []time.Duration   // By endpoint: messages to it wait until then.
	cut      [][]time.Duration // By sender and receiver: cut one way until then.
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

// reaches reports whether messages from one endpoint arrive at the other.
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

// connected reports whether two endpoints reach each other.
func (w *world) connected(a, b int) bool { return w.reaches(a, b) && w.reaches(b, a) }

// send runs fn at an endpoint whose process is up, unless the message is lost.
// Sometimes fn runs twice.
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

// delay returns the latency of a message. It is sometimes long, so that later
// messages overtake.
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
