package autoscale

import (
	"math"
	"time"

	"berth/compute"
)

// Counts has the counts of all servers for a deployment since they started.
type Counts struct {
	Started  uint64
	UnderWay int
	Waiting  int     // Requests under way that wait for a place at a busy replica.
	Delays   []int64 // Answers by the time to the first byte, by their DelayClass.

	// Idle is how long the deployment has certainly had no requests, and all its replicas.
	Idle time.Duration
}

// idleRest is the part of the idle time, a tenth, that a new leader waits at least:
// clients may be about to ask another server after the one that is gone.
const idleRest = 10

// Scaler decides for one leader. Its owner calls it from one goroutine.
type Scaler struct {
	IdlePause time.Duration // Without requests; 0 for never.

	known map[compute.ExecutionID]*history
}

// history has the observations of a Scaler for one deployment.
type history struct {
	at       time.Time
	last     Counts
	changed  compute.Instant
	busyAt   time.Time // When it last had requests, or no ready replica.
	enoughAt time.Time // Since when fewer replicas would do; zero if they do not.
	most     int       // The most that were wanted since.
}

// New returns a Scaler that has seen nothing.
func New(idlePause time.Duration) *Scaler {
	return &Scaler{IdlePause: idlePause, known: make(map[compute.ExecutionID]*history)}
}

// Keep forgets all deployments but those for which keep returns true.
func (s *Scaler) Keep(keep func(compute.ExecutionID) bool) {
	for id := range s.known {
		if !keep(id) {
			delete(s.known, id)
		}
	}
}

// Replicas returns how many replicas a deployment should have, 0 to pause it. Ready is
// how many of them answer, and places how many requests each of them answers at once.
func (s *Scaler) Replicas(e *compute.Execution, ready, places int, c Counts, now time.Time) int {
	d, have := e.Deployment, e.Service.Replicas
	h := s.known[e.ID]
	if h == nil || d.State != compute.DeploymentActive || c.Started < h.last.Started || h.changed != d.ChangedAt {
		busy := now
		if h == nil { // Other leaders have seen more.
			busy = now.Add(-min(c.Idle, s.IdlePause-s.IdlePause/idleRest))
		}
		s.known[e.ID] = &history{at: now, last: c, changed: d.ChangedAt, busyAt: busy}
		return have
	}
	elapsed := now.Sub(h.at)
	if elapsed <= 0 {
		return have
	}
	started, slow := c.Started-h.last.Started, delay95(c.Delays, h.last.Delays)
	queued := min(c.Waiting, h.last.Waiting) // At least so many, unless the queue was empty in between.
	h.at, h.last = now, c
	if started > 0 || c.UnderWay > 0 || ready == 0 {
		h.busyAt = now
	}
	if s.IdlePause > 0 && now.Sub(h.busyAt) >= s.IdlePause {
		return 0
	}
	want := int(math.Ceil(float64(started) / elapsed.Seconds() * 1000 / float64(d.TargetMilliRPS)))
	if more := extra(slow > d.TargetP95, queued, places); more > 0 {
		if ready != have { // Replicas that were added are still starting, and stay.
			more = 0
		}
		want = max(want, have+more)
	}
	want = min(max(want, d.First()), d.Max)
	if want >= have {
		h.enoughAt, h.most = time.Time{}, 0
		return want
	}
	h.most = max(h.most, want)
	if h.enoughAt.IsZero() {
		h.enoughAt = now
	}
	if now.Sub(h.enoughAt) < d.Window {
		return have
	}
	return h.most
}

// extra returns how many replicas more there should be: one if answers are slow, and as
// many as would answer the requests that wait, which do not show in the delays yet.
func extra(slow bool, queued, places int) (more int) {
	if slow {
		more = 1
	}
	return max(more, (queued+places-1)/max(places, 1))
}
