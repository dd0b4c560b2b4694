package router

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"berth/compute"
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
}

// lost returns how many replicas were lost with the request: those that broke its
// connection, and those that answered it by an error and are gone.
func (f *failedRequest) lost(ready []Replica) (n int) {
	for _, r := range f.replicas {
		if r.broken || !slices.Contains(ready, r.Replica) {
			n++
		}
	}
	return n
}

// requestKey names a request by its deployment and its body, which is not kept.
func (r *Router) requestKey(deployment *compute.Execution, body []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	_, _ = h.Write(deployment.ID.UUID[:])
	_, _ = h.Write(body)
	return h.Sum64()
}

// risk returns how many replicas more may fail with a request: fewer if replicas were lost
// with its body before, and none for a while after two of them. Else a client that repeats a
// request on which engines end would end each replica, and each again once it has
// restarted, until the deployment has failed. It reports whether replicas failed with the
// body.
func (r *Router) risk(deployment *compute.Execution, body []byte, ready []Replica) (most int, known bool) {
	r.mu.Lock()
	none := len(r.failed) == 0
	r.mu.Unlock()
	if none {
		return compute.MaxReplicaFailures, false
	}
	key := r.requestKey(deployment, body)
	r.mu.Lock()
	defer r.mu.Unlock()
	f, now := r.failed[key], r.now()
	if f == nil || !now.Before(f.until) {
		delete(r.failed, key)
		return compute.MaxReplicaFailures, false
	}
	switch lost := f.lost(ready); {
	case lost >= compute.MaxReplicaFailures && now.Sub(f.last) < quarantine(deployment, lost):
		return 0, true
	case lost > 0:
		return 1, true
	}
	return compute.MaxReplicaFailures, true
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
			for other := range r.failed { // Any one: so many are an attack.
				delete(r.failed, other)
				break
			}
		}
		f = new(failedRequest)
		r.failed[key] = f
	}
	f.last, f.until = now, now.Add(quarantine(deployment, maxQuarantined))
	f.replicas = slices.DeleteFunc(f.replicas, func(other failedReplica) bool { return other.Replica == replica.Replica })
	f.replicas = append(f.replicas, replica)
	f.replicas = f.replicas[max(len(f.replicas)-maxQuarantined, 0):]
}

// forgetFailed forgets a request that was answered.
func (r *Router) forgetFailed(deployment *compute.Execution, body []byte) {
	key := r.requestKey(deployment, body)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failed, key)
}
