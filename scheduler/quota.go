package scheduler

import (
	"cmp"
	"slices"

	"berth/compute"
)

// quota is a limit and its load, including what this pass has placed.
type quota struct {
	compute.Quota

	load     compute.Load
	promised int64           // Thousandths of GPUs promised to one execution.
	from     compute.Instant // When the promise begins; Never when unknown.
}

// holding is a placed execution that counts in quotas, and its latest end.
type holding struct {
	execution *compute.Execution
	until     compute.Instant
}

// quotas returns the quotas of an organization, its keys and its tags.
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

// overQuota returns why e may not be placed at present, ReasonNone when it may.
// If only GPU quotas refuse it, those GPUs are promised to it.
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
			return refusal // It blocks no other execution.
		}
	}
	if why != compute.ReasonNone {
		s.promise(e, s.view.Now())
	}
	return why
}

// promise reserves quota GPUs for e, which waits for them or for a place from
// an instant on, in all quotas that count it. Executions behind it cannot pass
// it for ever, except those that end before all of the quotas are free for it. In
// each quota only the first execution gets a promise in a pass. The next one
// gets it when that one is placed.
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
		from = max(from, s.freeIn(q, held))
	}
	for _, q := range kept {
		q.promised, q.from = held, from
	}
}

// freeIn returns when a quota has so many thousandths of GPUs free if
// everything that counts in it runs to its latest end and nothing else is
// placed. It returns Never when that is unknown.
func (s *pass) freeIn(q *quota, milli int64) compute.Instant {
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

// count counts e, which has been placed, in its quotas.
func (s *pass) count(e *compute.Execution) {
	s.started[e.Org] = append(s.started[e.Org], holding{e, e.EndsBy(s.view.Now())})
	for _, q := range s.quotas(e.Org) {
		if q.Concerns(e) {
			q.load.Attempts++
			q.load.MilliGPU += e.Request.HeldMilliGPU()
		}
	}
}
