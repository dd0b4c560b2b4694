package fsm

import (
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// maxEstimate is the longest estimate that is kept: a longer one is as good as never.
const maxEstimate = 366 * 24 * time.Hour

// recordEstimates keeps estimates of executions that wait and have none yet.
func (s *statistics) recordEstimates(c command.RecordEstimates) command.Result {
	var r command.Result
	for _, estimate := range c.Estimates {
		known, ok := s.view.executions.Get(estimate.Execution)
		if !ok || known.Status != compute.StatusQueued || known.Estimate != nil ||
			estimate.P50 < 0 || estimate.P90 < estimate.P50 || estimate.P90 > maxEstimate {
			continue
		}
		e := *known
		by := s.view.meta.Calibration.Sizes[e.Request.SizeClass()].Scales()
		e.Estimate = &compute.Estimated{At: c.At, P50: estimate.P50, P90: estimate.P90, By: by}
		s.execution.putExecution(&e)
		r.Count++
	}
	return r
}

// lateSweep is how many executions that wait one Tick compares with their
// estimates.
const lateSweep = 1_000

// countLate corrects the estimates by those that are overdue: of the
// executions that wait, those whose estimates end first.
func (s *statistics) countLate() {
	if s.view.Format() < format.Trust {
		// As every replica of that format does: the front of the queue alone.
		for _, k := range s.view.queue.FirstKeys(lateSweep) {
			s.countIfLate(k.id)
		}
		return
	}
	for _, m := range s.view.estimated.FirstKeys(lateSweep) {
		s.countIfLate(m.execution())
	}
}

func (s *statistics) countIfLate(id compute.ExecutionID) {
	known, _ := s.view.executions.Get(id)
	if known.Estimate == nil {
		return
	}
	calibration := &s.view.meta.Calibration
	if counted, news := calibration.Overdue(*known.Estimate, known.Request.SizeClass(), s.view.meta.Now); news {
		e := *known
		e.Estimate = &counted
		s.execution.putExecution(&e)
	}
}

// mayBeLate reports whether e waits with an estimate that may yet be overdue.
func mayBeLate(e *compute.Execution) bool {
	return e.Status == compute.StatusQueued && e.Estimate != nil && (!e.Estimate.Late50 || !e.Estimate.Late90)
}

// lateFrom returns when e is overdue next, before the scaling of estimates: nearly the
// order in which estimates end.
func lateFrom(e *compute.Execution) timeKey {
	wait := e.Estimate.P50
	if e.Estimate.Late50 {
		wait = e.Estimate.P90
	}
	return timeKeyOf(e.Estimate.At.Add(wait), e.ID.UUID)
}

// observeStart compares the estimate of e, which starts now, with the truth.
func (s *statistics) observeStart(e *compute.Execution) {
	if e.Estimate != nil {
		s.view.meta.Calibration.Observe(*e.Estimate, e.Request.SizeClass(), s.view.meta.Now)
		e.Estimate = nil
	}
}
