package router

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"berth/compute"
	"berth/fsm"
)

// maxFailed bounds the requests that a node remembers because replicas failed with them.
const maxFailed = 1024

// failedRequest is a request with which replicas failed. It may be why.
type failedRequest struct {
	replicas []failedReplica // The newest last.
	last     time.Time
	until    time.Time // Then it is forgotten.
}

// failedReplica is a replica that failed with a request.
type failedReplica struct {
	Replica

	broken bool // It broke the connection. Otherwise it has answered by an error.
	at     time.Time
}

// endKnown is how long the end of a replica takes to be known. One that broke a connection
// longer ago, and has not ended, is not counted.
const endKnown = 10 * time.Second

// lost returns how many replicas were lost with the request: those that failed afterwards,
// and those that broke its connection a moment ago and have not ended yet. It may have been
// their node that broke it. So all of one node count as one until it is known, and from two
// of them on the node is suspect. Replicas that were stopped or replaced, or whose node was
// lost, do not count: the request was not the reason.
func (f *failedRequest) lost(view *fsm.View, now time.Time) (n int, suspect map[compute.NodeID]bool) {
	unknown := make(map[compute.NodeID]int) // Replicas, by node, of which it is not known whether they ended.
	for _, r := range f.replicas {
		a := attemptOf(view, r.Replica)
		switch {
		case a != nil && a.Ended:
			if hasFailed(a) {
				n++
			}
		case r.broken && now.Sub(r.at) < endKnown:
			unknown[r.Node]++
		}
	}
	suspect = make(map[compute.NodeID]bool)
	for node, count := range unknown {
		if n++; count > 1 {
			suspect[node] = true
		}
	}
	return n, suspect
}

// attemptOf returns the attempt of a replica, nil if the state does not have it.
func attemptOf(view *fsm.View, r Replica) *compute.Attempt {
	for _, a := range view.Attempts(r.Execution) {
		if a.Epoch == r.Epoch {
			return a
		}
	}
	return nil
}

// hasFailed reports whether an attempt failed, and not its node.
func hasFailed(a *compute.Attempt) bool {
	return a.Reason != compute.ReasonNodeLost &&
		(a.Status == compute.StatusFailed || a.Status == compute.StatusSystemFailure)
}

// requestKey names a request by its deployment and its body, which is not kept.
func (r *Router) requestKey(deployment *compute.Execution, body []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	_, _ = h.Write(deployment.ID.UUID[:])
	_, _ = h.Write(body)
	return h.Sum64()
}

// risk is what is known of a request from replicas that failed with its body.
type risk struct {
	known   bool                    // Some did.
	most    int                     // Replicas more that may fail with it.
	wait    time.Duration           // For which it is kept from replicas, if none may.
	suspect map[compute.NodeID]bool // Nodes that are not asked, until more is known.
}

// allowed returns those of replicas that are not on suspect nodes.
func (k risk) allowed(replicas []Replica) []Replica {
	if len(k.suspect) == 0 {
		return replicas
	}
	return slices.DeleteFunc(slices.Clone(replicas), func(p Replica) bool { return k.suspect[p.Node] })
}

// riskOf returns how many replicas more may fail with a request: fewer if replicas were lost
// with its body before, and none for a while after two of them. Else a client that repeats a
// request on which engines end would end each replica, and each again once it has restarted,
// until the deployment has failed.
func (r *Router) riskOf(view *fsm.View, deployment *compute.Execution, body []byte) risk {
	none := risk{most: compute.MaxReplicaFailures}
	r.mu.Lock()
	empty := len(r.failed) == 0
	r.mu.Unlock()
	if empty {
		return none
	}
	key := r.requestKey(deployment, body)
	r.mu.Lock()
	defer r.mu.Unlock()
	f, now := r.failed[key], r.now()
	if f == nil || !now.Before(f.until) {
		delete(r.failed, key)
		return none
	}
	lost, suspect := f.lost(view, now)
	since := now.Sub(f.last)
	out := risk{known: true, most: compute.MaxReplicaFailures, wait: endKnown - since, suspect: suspect}
	if wait := quarantine(deployment, lost) - since; lost >= compute.MaxReplicaFailures && wait > 0 {
		out.most, out.wait = 0, wait
	} else if lost > 0 {
		out.most = 1
	}
	return out
}

// maxQuarantined is the number of lost replicas from which on a request waits longest.
const maxQuarantined = 4

// quarantine returns how long a request is not sent again with which so many replicas were
// lost. The longest is longer than a replica takes to begin with its first back-off again.
func quarantine(deployment *compute.Execution, lost int) time.Duration {
	reset := cmp.Or(deployment.Service.BackoffReset, compute.DefaultBackoffReset)
	return reset * 5 / 4 >> max(maxQuarantined-lost, 0)
}

// noteFailed remembers that a replica failed with a request.
func (r *Router) noteFailed(deployment *compute.Execution, body []byte, replica failedReplica) {
	key := r.requestKey(deployment, body)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	maps.DeleteFunc(r.failed, func(_ uint64, f *failedRequest) bool { return !now.Before(f.until) })
	f := r.failed[key]
	if f == nil {
		if len(r.failed) >= maxFailed {
			delete(r.failed, r.oldestFailed())
		}
		f = new(failedRequest)
		r.failed[key] = f
	}
	f.last, f.until = now, now.Add(quarantine(deployment, maxQuarantined))
	f.replicas = slices.DeleteFunc(f.replicas, func(other failedReplica) bool { return other.Replica == replica.Replica })
	replica.at = now
	f.replicas = append(f.replicas, replica)
	f.replicas = f.replicas[max(len(f.replicas)-maxQuarantined, 0):]
}

// oldestFailed returns the request that would be forgotten first. The caller holds the lock.
func (r *Router) oldestFailed() (oldest uint64) {
	var until time.Time
	for key, f := range r.failed {
		if until.IsZero() || f.until.Before(until) {
			oldest, until = key, f.until
		}
	}
	return oldest
}

// forgetFailed forgets a request that was answered.
func (r *Router) forgetFailed(deployment *compute.Execution, body []byte) {
	key := r.requestKey(deployment, body)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failed, key)
}
