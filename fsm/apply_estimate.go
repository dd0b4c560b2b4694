package fsm

import (
	"time"

	"berth/compute"
)

// maxEstimate is the longest estimate that is kept: what is behind it is as
// good as never.
const maxEstimate = 366 * 24 * time.Hour

// recordEstimates keeps estimates of executions that wait and have none yet.
func (s *state) recordEstimates(c RecordEstimates) Result {
	var r Result
	for _, estimate := range c.Estimates {
		known, ok := s.executions.get(estimate.Execution)
		if !ok || known.Status != compute.StatusQueued || known.Estimate != nil ||
			estimate.P50 < 0 || estimate.P90 < estimate.P50 || estimate.P90 > maxEstimate {
			continue
		}
		e := *known
		by := s.meta.Calibration.Sizes[e.Request.SizeClass()].Scales()
		e.Estimate = &compute.Estimated{At: c.At, P50: estimate.P50, P90: estimate.P90, By: by}
		s.putExecution(&e)
		r.Count++
	}
	return r
}

// lateSweep is how many executions of the queue one Tick compares with their
// estimates.
const lateSweep = 1_000

// countLate corrects the estimates by those that are overdue.
func (s *state) countLate() {
	for _, k := range s.queue.take(lateSweep) {
		known, _ := s.executions.get(k.id)
		if known.Estimate == nil {
			continue
		}
		if counted, news := s.meta.Calibration.Overdue(*known.Estimate, known.Request.SizeClass(), s.meta.Now); news {
			e := *known
			e.Estimate = &counted
			s.putExecution(&e)
		}
	}
}

// observeStart compares the estimate of e, which starts now, with the truth.
func (s *state) observeStart(e *compute.Execution) {
	if e.Estimate != nil {
		s.meta.Calibration.Observe(*e.Estimate, e.Request.SizeClass(), s.meta.Now)
		e.Estimate = nil
	}
}
