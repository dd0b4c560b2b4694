package scheduler

import "berth/compute"

// quota is a limit with what counts in it already, counting what this pass has
// placed and promised.
type quota struct {
	compute.Quota

	load compute.Load
}

// quotas returns those that an organization, its keys and its tags have.
func (s *pass) quotas(org compute.OrgID) []*quota {
	known, ok := s.granted[org]
	if !ok {
		for _, q := range s.view.Quotas(org) {
			known = append(known, &quota{q, s.view.Load(q)})
		}
		s.granted[org] = known
	}
	return known
}

// overQuota returns why e may not get a place now, ReasonNone when it may.
// The first that waits for GPUs of a quota has them promised: what is behind
// it in the same quota cannot pass it for ever.
func (s *pass) overQuota(e *compute.Execution) compute.Reason {
	for _, q := range s.quotas(e.Org) {
		if !q.Concerns(e) {
			continue
		}
		why := q.Refuses(q.load, e)
		if why == compute.ReasonQuotaGPUs && e.Request.HeldMilliGPU() <= q.MilliGPU {
			q.load.MilliGPU += e.Request.HeldMilliGPU()
		}
		if why != compute.ReasonNone {
			return why
		}
	}
	return compute.ReasonNone
}

// count counts e in its quotas.
func (s *pass) count(e *compute.Execution) {
	for _, q := range s.quotas(e.Org) {
		if q.Concerns(e) {
			q.load.Attempts++
			q.load.MilliGPU += e.Request.HeldMilliGPU()
		}
	}
}
