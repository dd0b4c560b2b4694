package router

import (
	"slices"
	"sync"
	"time"

	"berth/compute"
	"berth/node/inference/autoscale"
)

// Load counts the requests to a deployment through this node since the node started.
type Load struct {
	Deployment compute.ExecutionID `cbor:"1,keyasint"`
	Started    uint64              `cbor:"2,keyasint,omitempty"`
	UnderWay   int                 `cbor:"3,keyasint,omitempty"`
	Waiting    int                 `cbor:"5,keyasint,omitempty"` // Requests that wait for a place at a replica.

	// Delays are answers by the time to their first byte, in the classes of
	// autoscale.DelayClass; the last ones may be missing. (Key 4 was for classes that
	// older versions had.)
	Delays []int64 `cbor:"6,keyasint,omitempty"`

	// Idle is the time without a request. That of no deployment is for all that are not
	// in the list.
	Idle time.Duration `cbor:"7,keyasint,omitempty"`
}

// maxLoads bounds the deployments that a node counts for.
const maxLoads = 10_000

// load is the Load of a deployment as it is counted.
type load struct {
	started  uint64
	underWay int
	delays   []int64
	last     time.Time // Begin or end of the newest request.
}

// Loads returns the load of each deployment that was asked through this node, and first
// since when no other one was.
func (r *Router) Loads() []Load {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Load, 1, len(r.loads)+1)
	out[0].Idle = now.Sub(r.since)
	for id, l := range r.loads {
		load := Load{Deployment: id, Started: l.started, UnderWay: l.underWay, Delays: slices.Clone(l.delays)}
		if l.underWay == 0 {
			load.Idle = now.Sub(l.last)
		}
		if g := r.gates[id]; g != nil {
			_, load.Waiting = g.State()
		}
		out = append(out, load)
	}
	return out
}

// Count counts a request to a deployment, one that waits for a replica included. The
// caller calls answered with the first byte, and done at the end.
func (r *Router) Count(deployment compute.ExecutionID, now func() time.Time) (answered, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.loads[deployment]
	if l == nil {
		r.forget()
		l = new(load)
		r.loads[deployment] = l
	}
	l.started++
	l.underWay++
	l.last = r.now()
	begun := now()
	answered = func() {
		class := autoscale.DelayClass(now().Sub(begun))
		r.mu.Lock()
		defer r.mu.Unlock()
		if more := class + 1 - len(l.delays); more > 0 {
			l.delays = append(l.delays, make([]int64, more)...)
		}
		l.delays[class]++
	}
	return answered, sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		l.underWay--
		l.last = r.now()
	})
}

// forget drops the counts of deployments without requests if there are too many. The
// caller has locked r.mu.
func (r *Router) forget() {
	if len(r.loads) < maxLoads {
		return
	}
	r.since = r.now()
	for id, l := range r.loads {
		if l.underWay == 0 {
			delete(r.loads, id)
		}
	}
}
