package scheduler

import (
	"cmp"
	"slices"

	"berth/compute"
)

// quota is a limit and its load, including the executions that this pass has placed.
type quota struct {
	compute.Quota

	load     compute.Load
	promised int64           // Thousandths of GPUs promised to one execution.
	from     compute.Instant // When the promise begins; Never when unknown.
}

// quotaLoads counts the executions that a pass places in the quotas of the view.
type quotaLoads struct {
	view    View
	granted map[compute.OrgID][]*quota
	started map[compute.OrgID][]holding // Executions that this pass placed.

	promises int // Number of promises made.
}

// holding is a placed execution that counts in quotas, and its latest end.
type holding struct {
	execution *compute.Execution
	until     compute.Instant
}

// of returns the quotas of an organization, its keys, its tags and its hardware profiles.
func (l *quotaLoads) of(org compute.OrgID) []*quota {
	known, ok := l.granted[org]
	if !ok {
		for _, q := range l.view.Quotas(org) {
			known = append(known, &quota{Quota: q, load: l.view.Load(q)})
		}
		l.granted[org] = known
	}
	return known
}

// open returns the request of e without the GPU types that the quotas of their hardware
// profiles refuse at present. If they refuse each, it returns the whole request, and why. Such
// an execution waits without a promise.
func (l *quotaLoads) open(e *compute.Execution) (compute.Request, compute.Reason) {
	profiled := slices.ContainsFunc(l.of(e.Org), func(q *quota) bool { return q.Profile != "" })
	if !profiled {
		return e.Request, compute.ReasonNone
	}
	end := e.EndsBy(l.view.Now().Add(commitMargin))
	return e.Narrowed(func(placed *compute.Execution) compute.Reason {
		for _, q := range l.of(e.Org) {
			if q.Profile == "" || !q.AppliesTo(placed) {
				continue
			}
			if why := q.Refuses(q.loadUntil(end), placed); why != compute.ReasonNone {
				return why
			}
		}
		return compute.ReasonNone
	})
}

// loadUntil returns the load of q for an execution that ends by an instant: GPUs are promised
// only from an instant on.
func (q *quota) loadUntil(end compute.Instant) compute.Load {
	load := q.load
	if end > q.from || end == compute.Never {
		load.MilliGPU += q.promised
	}
	return load
}

// refusal returns why e may not be placed at present, ReasonNone when it may.
// If only GPU quotas refuse it, those GPUs are promised to it.
func (l *quotaLoads) refusal(e *compute.Execution) compute.Reason {
	end, why := e.EndsBy(l.view.Now().Add(commitMargin)), compute.ReasonNone
	for _, q := range l.of(e.Org) {
		if !q.AppliesTo(e) {
			continue
		}
		switch reason := q.Refuses(q.loadUntil(end), e); reason {
		case compute.ReasonNone:
		case compute.ReasonQuotaGPUs:
			why = reason
		default:
			return reason // It blocks no other execution.
		}
	}
	if why != compute.ReasonNone {
		l.promise(e, l.view.Now())
	}
	return why
}

// promise reserves quota GPUs for e, which waits for them or for a place from
// an instant on, in all quotas that count it. Executions behind it cannot pass
// it for ever, except those that end before all of the quotas are free for it.
// In each quota only the first execution gets a promise in a pass. The next one
// gets it when that one is placed.
func (l *quotaLoads) promise(e *compute.Execution, at compute.Instant) {
	held, from := e.Request.HeldMilliGPU(), at
	var kept []*quota
	for _, q := range l.of(e.Org) {
		if q.MilliGPU == 0 || held == 0 || !q.AppliesTo(e) {
			continue
		}
		if q.promised > 0 || held > q.MilliGPU {
			return
		}
		kept = append(kept, q)
		from = max(from, l.freeIn(q, held))
	}
	for _, q := range kept {
		q.promised, q.from = held, from
		l.promises++
	}
}

// freeIn returns when a quota has so many thousandths of GPUs free if
// everything that counts in it runs to its latest end and nothing else is
// placed. It returns Never when that is unknown.
func (l *quotaLoads) freeIn(q *quota, milli int64) compute.Instant {
	over, now := q.load.MilliGPU+milli-q.MilliGPU, l.view.Now()
	if over <= 0 {
		return now
	}
	ends := slices.Clone(l.started[q.Org])
	for w := range l.view.Held(q.Org) {
		if at := w.LatestEnd(); at.Add(overdue) >= now {
			ends = append(ends, holding{w.Execution, max(at, now)})
		}
	}
	slices.SortStableFunc(ends, func(a, b holding) int { return cmp.Compare(a.until, b.until) })
	for _, h := range ends {
		if h.until == compute.Never {
			break
		}
		if q.AppliesTo(h.execution) {
			over -= h.execution.Request.HeldMilliGPU()
		}
		if over <= 0 {
			return h.until
		}
	}
	return compute.Never
}

// count counts e, which has been placed, in its quotas.
func (l *quotaLoads) count(e *compute.Execution) {
	l.started[e.Org] = append(l.started[e.Org], holding{e, e.EndsBy(l.view.Now())})
	for _, q := range l.of(e.Org) {
		if q.AppliesTo(e) {
			q.load.Attempts++
			q.load.MilliGPU += e.Request.HeldMilliGPU()
		}
	}
}
