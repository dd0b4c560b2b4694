package router

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/node/inference/fair"
)

// Queues is how a node's router lets requests to models in.
type Queues struct {
	Concurrency func(*compute.Inference) int // Requests that a replica answers at once.
	Most        int                          // Requests that wait for one deployment.
	Wait        time.Duration                // The longest wait.
}

// gate is the entrance to a deployment on this node.
type gate struct {
	*fair.Gate[compute.OrgID]

	users  int   // Requests that hold it.
	places int   // Requests that all replicas together answer at once.
	others []int // Requests under way at each other server, as of the last report.
}

// SetQueues sets how requests to models are let in. It comes before the first of them.
func (r *Router) SetQueues(q Queues) { r.queues = q }

// Admit waits until a request to a deployment may be sent to a replica. Organizations
// share this node's part of the replicas' places by tokens. The caller calls leave with
// the tokens that the request used, 0 if they are not known.
func (r *Router) Admit(
	ctx context.Context, view *fsm.View, deployment *compute.Execution, org compute.OrgID, tokens int64,
) (leave func(tokens int64), err error) {
	places := r.placesOf(view, deployment)
	g := r.enterGate(deployment.ID, places)
	limited, cancel := context.WithTimeout(ctx, r.queues.Wait)
	defer cancel()
	out, err := g.Enter(limited, org, tokens)
	switch {
	case err == nil:
		return func(tokens int64) {
			out(tokens)
			r.leaveGate(g)
		}, nil
	case errors.Is(err, fair.ErrFull):
		err = compute.Errorf(compute.CodeUnavailable, "All replicas are busy, and too many requests wait for one.").
			Named("overloaded").Retry(retryBusy)
	case ctx.Err() == nil:
		err = compute.Errorf(compute.CodeUnavailable, "All replicas have been busy for %v.", r.queues.Wait).
			Named("overloaded").Retry(retryBusy)
	}
	r.leaveGate(g)
	return nil, err
}

// placesOf returns how many requests the replicas of a deployment answer at once.
func (r *Router) placesOf(view *fsm.View, deployment *compute.Execution) int {
	return r.queues.Concurrency(deployment.Inference) * max(len(r.ready(view, deployment)), 1)
}

// retryBusy is when a client may retry after it found all replicas busy.
const retryBusy = 5 * time.Second

// enterGate returns the gate of a deployment, with as many places as this node may use.
func (r *Router) enterGate(id compute.ExecutionID, places int) *gate {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gates[id]
	if g == nil {
		if len(r.gates) >= maxLoads {
			maps.DeleteFunc(r.gates, func(_ compute.ExecutionID, g *gate) bool { return g.users == 0 })
		}
		g = &gate{Gate: fair.NewGate[compute.OrgID](r.queues.Most, r.crowd)}
		r.gates[id] = g
	}
	g.users++
	if g.places != places {
		g.places = places
		r.share(g)
	}
	return g
}

// leaveGate ends the use of a gate. The gate stays, with the costs that it has learned.
func (r *Router) leaveGate(g *gate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.users--
}

// share sets how many places this node may use. The caller has locked r.mu.
func (r *Router) share(g *gate) {
	others := g.others
	if others == nil {
		others = make([]int, r.servers)
		for i := range others {
			others[i] = fair.Unknown
		}
	}
	g.SetPlaces(fair.Share(g.places, others))
}

// crowd notes that requests wait.
func (r *Router) crowd() {
	select {
	case r.crowded <- struct{}{}:
	default:
	}
}

// Crowded returns the channel on which it is notified that a request began to wait.
func (r *Router) Crowded() <-chan struct{} { return r.crowded }

// Busy reports whether some deployment is asked so much that requests wait, or would if
// this node had no more than an equal part of the places.
func (r *Router) Busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.gates {
		inside, waiting := g.State()
		if waiting > 0 || inside*(r.servers+1) >= g.places {
			return true
		}
	}
	return false
}

// SetDemand sets the number of other servers, and the requests that each has under way. The
// map of a server that has not reported is nil; loads is empty while it is not needed.
func (r *Router) SetDemand(view *fsm.View, servers int, loads []map[compute.ExecutionID]int) {
	places := r.allPlaces(view)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers = servers
	for id, g := range r.gates {
		if n, ok := places[id]; ok {
			g.places = n
		}
		g.others = nil
		for _, underWay := range loads {
			demand := fair.Unknown
			if underWay != nil {
				demand = underWay[id]
			}
			g.others = append(g.others, demand)
		}
		r.share(g)
	}
}

// allPlaces returns placesOf each deployment that has a gate.
func (r *Router) allPlaces(view *fsm.View) map[compute.ExecutionID]int {
	r.mu.Lock()
	ids := slices.Collect(maps.Keys(r.gates))
	r.mu.Unlock()
	places := make(map[compute.ExecutionID]int, len(ids))
	for _, id := range ids {
		if e, ok := view.AnyExecution(id); ok && e.Deployment != nil {
			places[id] = r.placesOf(view, e)
		}
	}
	return places
}
