package router

import (
	"net/http"
	"sync"

	"berth/compute"
)

// maxDrained is how many replicas a node knows that get no more requests. One that it
// forgets has long been stopped in its view of the state.
const maxDrained = 4096

// Drain ends the sending of requests from this node to a replica, which is about to be
// stopped, and returns how many are under way there. Connections whose protocol has
// changed, such as WebSockets, do not count: only their program knows when they end.
func (r *Router) Drain(replica compute.ExecutionID) (underWay int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.drained[replica] {
		if len(r.oldest) == maxDrained {
			delete(r.drained, r.oldest[0])
			r.oldest = r.oldest[1:]
		}
		r.drained[replica], r.oldest = true, append(r.oldest, replica)
	}
	return r.busy[replica] - r.switched[replica]
}

// countSwitched counts an answer that changes the protocol of its connection. The
// caller calls the returned function instead of done.
func (r *Router) countSwitched(to Replica, answer *http.Response, done func()) func() {
	if answer.StatusCode != http.StatusSwitchingProtocols {
		return done
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.switched[to.Execution]++
	return sync.OnceFunc(func() {
		r.mu.Lock()
		if r.switched[to.Execution]--; r.switched[to.Execution] == 0 {
			delete(r.switched, to.Execution)
		}
		r.mu.Unlock()
		done()
	})
}
