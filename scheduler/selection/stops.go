package selection

import (
	"fmt"
	"math"
	"time"

	"berth/compute"
)

// Times and margins of a GPU selection.
const (
	// StartWithin is how long a sub-execution may wait for capacity without a
	// deadline. It counts from the submit, from the end of the sub-execution
	// before it, or from the end of its own last attempt.
	StartWithin = time.Hour
	// Patience is how long a GPU type may go on waiting once all others have
	// ended and there is something to recommend.
	Patience = time.Minute

	equalMargin   = 0.01 // A candidate that is worse by no more counts as equal.
	repeatsErrors = 3.0  // Standard errors by which a candidate must be worse to skip its repeats.
)

// Live is a GPU selection whose sub-executions have not all ended. A candidate
// is one of its GPU types.
type Live struct {
	Objective  compute.Objective
	Repeats    int
	Complete   bool            // Nothing is stopped early.
	Deadline   time.Duration   // From the submit; 0 for none.
	Created    compute.Instant // When it was submitted.
	Now        compute.Instant
	Candidates []compute.Candidate
	Progress   map[compute.ExecutionID]Progress // Known progress of sub-executions that run or have completed.
}

// Stops returns the sub-executions that need not go on, in the order of the
// candidates, each once:
//
//   - one that has not started by the deadline, or, without a deadline, within
//     an hour, or within a minute after all others have ended. Without a
//     deadline a lost attempt restarts this time;
//   - one that still executes after the deadline, once a candidate has
//     completed;
//   - unless the selection must be complete, one that can no longer win. Under
//     fastest and cheapest that is a candidate that is certain to be slower, or
//     dearer, than one that has completed. Under balanced it must be both, so
//     that it cannot be on the Pareto front.
//
// Only completed candidates stop others: a running one may still fail. The
// first sub-execution of a candidate is judged by its progress, and is not
// stopped if it prints none. Its repeats are judged by its result.
func (l *Live) Stops() []compute.CandidateStop {
	results := make([]compute.CandidateResult, len(l.Candidates))
	answer, active := false, false
	for i := range l.Candidates {
		results[i] = resultOf(&l.Candidates[i])
		answer = answer || results[i].Completed > 0
		active = active || !results[i].Status.Terminal() && started(&l.Candidates[i])
	}
	var stops []compute.CandidateStop
	for i := range l.Candidates {
		if results[i].Status.Terminal() {
			continue
		}
		stop, ok := l.late(&l.Candidates[i], answer, active)
		if !ok && !l.Complete {
			stop, ok = l.beaten(i, results)
		}
		if ok {
			stops = append(stops, stop)
		}
	}
	return stops
}

// NeedsProgress reports whether Stops would decide more if it knew the progress
// of the sub-executions: a candidate has completed, and another one executes
// its first sub-execution.
func (l *Live) NeedsProgress() bool {
	answer, running := false, false
	for i := range l.Candidates {
		s := resultOf(&l.Candidates[i])
		answer = answer || s.Completed > 0
		running = running || s.Completed == 0 && s.Status == compute.StatusRunning
	}
	return answer && running && !l.Complete
}

// started reports whether any sub-execution of the candidate was ever placed.
func started(c *compute.Candidate) bool {
	for i := range c.Runs {
		run := &c.Runs[i]
		if run.Status == compute.StatusStarting || run.Status == compute.StatusRunning || run.Duration > 0 {
			return true
		}
	}
	return false
}

// current returns the sub-execution of the candidate that is queued or
// executes, nil for none.
func current(c *compute.Candidate) *compute.CandidateRun {
	for i := range c.Runs {
		if s := c.Runs[i].Status; !s.Terminal() && s != compute.StatusPending {
			return &c.Runs[i]
		}
	}
	return nil
}

// late returns the stop of a candidate that is out of time. answer reports that
// there is something to recommend, active that some candidate that has started
// goes on.
func (l *Live) late(c *compute.Candidate, answer, active bool) (compute.CandidateStop, bool) {
	run := current(c)
	if run == nil {
		return compute.CandidateStop{}, false
	}
	within, out := l.outOfTime(c, answer && !active)
	if !out {
		return compute.CandidateStop{}, false
	}
	stop := compute.CandidateStop{Execution: run.Execution, Reason: compute.ReasonDeadline}
	switch {
	case run.Status == compute.StatusQueued && !started(c):
		stop.Reason = compute.ReasonNoCapacity
		stop.Detail = fmt.Sprintf("no capacity within %s (%s)", within, run.Reason)
		return stop, true
	case run.Status == compute.StatusQueued:
		stop.Detail = fmt.Sprintf("not repeated within %s (%s)", within, run.Reason)
		return stop, true
	case l.Deadline > 0 && answer:
		stop.Detail = fmt.Sprintf("still running at the deadline of %s", l.Deadline)
		if part := l.Progress[run.Execution].part(); part > 0 {
			stop.Detail += fmt.Sprintf(", at %.0f %%", 100*part)
		}
		return stop, true
	}
	return compute.CandidateStop{}, false
}

// outOfTime reports whether a candidate's sub-execution must have started by
// now, and within which time. last reports that all others have ended and there
// is an answer.
func (l *Live) outOfTime(c *compute.Candidate, last bool) (within string, out bool) {
	if l.Deadline > 0 {
		return l.Deadline.String(), l.Now.Sub(l.Created) >= l.Deadline
	}
	since := max(l.Created, lastEnd(c), requeued(c))
	if l.Now.Sub(since) >= StartWithin {
		return StartWithin.String(), true
	}
	for i := range l.Candidates {
		since = max(since, lastEnd(&l.Candidates[i]), requeued(&l.Candidates[i]))
	}
	return Patience.String() + " of the others' end", last && l.Now.Sub(since) >= Patience
}

// lastEnd returns when the last finished sub-execution of a candidate ended.
func lastEnd(c *compute.Candidate) compute.Instant {
	var end compute.Instant
	for i := range c.Runs {
		end = max(end, c.Runs[i].Finished)
	}
	return end
}

// requeued returns since when a candidate waits for a retry, zero when it does
// not.
func requeued(c *compute.Candidate) compute.Instant {
	if run := current(c); run != nil && run.Status == compute.StatusQueued {
		return run.Requeued
	}
	return 0
}

// beaten returns the stop of candidate i if another one has certainly beaten
// it.
func (l *Live) beaten(i int, results []compute.CandidateResult) (compute.CandidateStop, bool) {
	c := &l.Candidates[i]
	run := current(c)
	if run == nil {
		return compute.CandidateStop{}, false
	}
	for j := range l.Candidates {
		if j == i || results[j].Completed == 0 {
			continue
		}
		if stop, ok := l.beatenBy(run, results[i], &l.Candidates[j], results[j]); ok {
			return stop, true
		}
	}
	return compute.CandidateStop{}, false
}

// beatenBy returns the stop of the candidate with the current sub-execution run
// and the result own, if the other candidate has beaten it.
func (l *Live) beatenBy(run *compute.CandidateRun, own compute.CandidateResult,
	other *compute.Candidate, its compute.CandidateResult,
) (compute.CandidateStop, bool) {
	name := shortName(other.Profile)
	if own.Completed > 0 {
		if !l.worse(own.Duration, own.Credits, its, l.spread(own.Completed, its.Completed)) {
			return compute.CandidateStop{}, false
		}
		return compute.CandidateStop{
			Execution: run.Execution, Reason: compute.ReasonStoppedEarly,
			Detail: fmt.Sprintf("not repeated: %s s and %s credits against %s s and %s credits of %s",
				seconds(own.Duration), own.Credits, seconds(its.Duration), its.Credits, name),
		}, true
	}
	progress, known := l.Progress[run.Execution]
	if !known || run.Status != compute.StatusRunning {
		return compute.CandidateStop{}, false
	}
	reference, whole := l.reference(other)
	least, ok := progress.Least(reference, whole)
	if !ok || !l.worse(least, run.Price.Charge(least), its, l.spread(1, its.Completed)) {
		return compute.CandidateStop{}, false
	}
	return compute.CandidateStop{
		Execution: run.Execution, Reason: compute.ReasonStoppedEarly, Predicted: least,
		Detail: fmt.Sprintf("at %.0f %% after %s s: it would take at least %s s and %s credits, %s took %s s and %s",
			100*progress.part(), seconds(progress.Elapsed), seconds(least), run.Price.Charge(least),
			name, seconds(its.Duration), its.Credits),
	}, true
}

// reference returns the progress of a candidate's first completed
// sub-execution, and its duration.
func (l *Live) reference(c *compute.Candidate) (Progress, time.Duration) {
	for i := range c.Runs {
		if c.Runs[i].Status == compute.StatusCompleted {
			return l.Progress[c.Runs[i].Execution], c.Runs[i].Duration
		}
	}
	return Progress{}, 0
}

// spread returns the relative margin by which candidates with a and b results
// must differ before one counts as worse. A candidate without repeats is judged
// by its one result. With repeats the results only estimate it.
func (l *Live) spread(a, b int) float64 {
	if l.Repeats <= 1 {
		return equalMargin
	}
	all := make([]measured, len(l.Candidates))
	for i := range l.Candidates {
		all[i] = measure(l.Objective, &l.Candidates[i])
	}
	deviation, _ := noise(all)
	return equalMargin + repeatsErrors*deviation*math.Sqrt(1/float64(a)+1/float64(b))
}

// worse reports whether a time and a price are worse than another candidate's
// by more than margin in everything that the objective compares.
func (l *Live) worse(d time.Duration, c compute.Credits, its compute.CandidateResult, margin float64) bool {
	slower := float64(d) > float64(its.Duration)*(1+margin)
	dearer := float64(c) > float64(its.Credits)*(1+margin)
	switch l.Objective {
	case compute.ObjectiveFastest:
		return slower
	case compute.ObjectiveCheapest:
		return dearer
	case compute.ObjectiveBalanced:
	}
	return slower && dearer
}
