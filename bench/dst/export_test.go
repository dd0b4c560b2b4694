package dst

import "time"

// Order returns the numbers of waits in the order in which the loop ends them.
func Order(waits []time.Duration) (order []int) {
	l := newLoop(1)
	for i, d := range waits {
		l.after(d, func() { order = append(order, i) })
	}
	for l.step(time.Hour) {
	}
	return order
}
