package scheduler

import (
	"cmp"
	"slices"

	"berth/compute"
)

// quota is a limit with what counts in it already, counting what this pass has
// placed.
type quota struct {
	compute.Quota

	load     compute.Load
	promised int64           // Thousandths of GPUs that are kept for one who waits;
	from     compute.Instant // from then on. Never: nobody knows when.
}

// holding is what an execution with a place counts in its quotas, and until
// when at the latest.
type holding struct {
	execution *compute.Execution
	until     compute.Instant
}

// quotas returns those that an organization, its keys and its tags have.
func (s *pass) quotas(org compute.OrgID) []*quota {
	known, ok := s.granted[org]
	if !ok {
		for _, q := range s.view.Quotas(org) {
			known = append(known, &quota{Quota: q, load: s.view.Load(q)})
		}
		s.granted[org] = known
	}
	return known
}

// overQuota returns why e may not get a place now, ReasonNone when it may.
// Where nothing but GPUs refuses it, they are promised to it.
func (s *pass) overQuota(e *compute.Execution) compute.Reason {
	end, why := e.EndsBy(s.view.Now().Add(commitMargin)), compute.ReasonNone
	for _, q := range s.quotas(e.Org) {
		if !q.Concerns(e) {
			continue
		}
		load := q.load
		if end > q.from || end == compute.Never {
			load.MilliGPU += q.promised
		}
		switch refusal := q.Refuses(load, e); refusal {
		case compute.ReasonNone:
		case compute.ReasonQuotaGPUs:
			why = refusal
		default:
			return refusal // It holds nobody up.
		}
	}
	if why != compute.ReasonNone {
		s.promise(e, s.view.Now())
	}
	return why
}

// promise keeps GPUs for e, which waits for them or for a place from an instant
// on, in all quotas that it counts in: what is behind it there cannot pass it
// for ever, but for what has ended by the time that all of them have room. Of
// each quota it is the first who is promised something in a pass; the next one
// is when that one has its place.
func (s *pass) promise(e *compute.Execution, at compute.Instant) {
	held, from := e.Request.HeldMilliGPU(), at
	var kept []*quota
	for _, q := range s.quotas(e.Org) {
		if q.MilliGPU == 0 || held == 0 || !q.Concerns(e) {
			continue
		}
		if q.promised > 0 || held > q.MilliGPU {
			return
		}
		kept = append(kept, q)
		from = max(from, s.roomIn(q, held))
	}
	for _, q := range kept {
		q.promised, q.from = held, from
	}
}

// roomIn returns when a quota has room for so many thousandths of GPUs if all
// that counts in it runs to its latest end and nothing comes after; Never when
// nobody knows.
func (s *pass) roomIn(q *quota, milli int64) compute.Instant {
	over, now := q.load.MilliGPU+milli-q.MilliGPU, s.view.Now()
	if over <= 0 {
		return now
	}
	ends := slices.Clone(s.started[q.Org])
	for w := range s.view.Held(q.Org) {
		if at := w.LatestEnd(); at.Add(overdue) >= now {
			ends = append(ends, holding{w.Execution, max(at, now)})
		}
	}
	slices.SortStableFunc(ends, func(a, b holding) int { return cmp.Compare(a.until, b.until) })
	for _, h := range ends {
		if h.until == compute.Never {
			break
		}
		if q.Concerns(h.execution) {
			over -= h.execution.Request.HeldMilliGPU()
		}
		if over <= 0 {
			return h.until
		}
	}
	return compute.Never
}

// count counts e, which has got a place, in its quotas.
func (s *pass) count(e *compute.Execution) {
	s.started[e.Org] = append(s.started[e.Org], holding{e, e.EndsBy(s.view.Now())})
	for _, q := range s.quotas(e.Org) {
		if q.Concerns(e) {
			q.load.Attempts++
			q.load.MilliGPU += e.Request.HeldMilliGPU()
		}
	}
}
