package selection

import (
	"fmt"
	"math"
	"time"

	"berth/compute"
)

// Times and margins of a GPU selection.
const (
	// StartWithin is how long a run may wait for capacity when no deadline was
	// asked for, from the submit, the end of the run before it, or that of its own
	// last attempt.
	StartWithin = time.Hour
	// Patience is how long a GPU type that waits is waited for once all others
	// have ended and there is something to recommend.
	Patience = time.Minute

	equalMargin   = 0.01 // A candidate that is worse by no more may run on: it is as good.
	repeatsErrors = 3.0  // Standard errors by which a candidate is worse whose repeats are spared.
)

// Live is what is known of a GPU selection whose runs have not all ended.
type Live struct {
	Objective  compute.Objective
	Repeats    int
	Complete   bool            // Nothing is stopped early.
	Deadline   time.Duration   // From the submit; 0 for none.
	Created    compute.Instant // Of the submit.
	Now        compute.Instant
	Candidates []compute.Candidate
	Progress   map[compute.ExecutionID]Progress // Of runs that execute or have completed, as far as known.
}

// Stops returns the runs that need not go on, in the order of the candidates,
// each once:
//
//   - what has not started by the deadline, or, without one, within an hour,
//     or a minute after all others have ended; without a deadline what lost its
//     attempt and begins anew has that time from then on;
//   - what still executes after the deadline, once a candidate has completed;
//   - unless the race is to be complete, what can no longer win: under fastest
//     and cheapest a candidate that is certain to be slower, or dearer, than
//     one that has completed; under balanced one that is both, so that it
//     could not be on the Pareto front either.
//
// Only candidates that have completed stop others: one that still runs may yet
// fail. The first run of a candidate is judged by its progress, and goes on to
// its end when it prints none; its repeats are judged by what it took.
func (r *Live) Stops() []compute.CandidateStop {
	rows := make([]compute.Standing, len(r.Candidates))
	answer, active := false, false
	for i := range r.Candidates {
		rows[i] = standingOf(&r.Candidates[i])
		answer = answer || rows[i].Completed > 0
		active = active || !rows[i].Status.Terminal() && started(&r.Candidates[i])
	}
	var stops []compute.CandidateStop
	for i := range r.Candidates {
		if rows[i].Status.Terminal() {
			continue
		}
		stop, ok := r.late(&r.Candidates[i], answer, active)
		if !ok && !r.Complete {
			stop, ok = r.beaten(i, rows)
		}
		if ok {
			stops = append(stops, stop)
		}
	}
	return stops
}

// NeedsProgress reports whether Stops would say more if it knew the paces of the
// runs: a candidate has completed, and another one executes its first run.
func (r *Live) NeedsProgress() bool {
	answer, running := false, false
	for i := range r.Candidates {
		s := standingOf(&r.Candidates[i])
		answer = answer || s.Completed > 0
		running = running || s.Completed == 0 && s.Status == compute.StatusRunning
	}
	return answer && running && !r.Complete
}

// started reports whether any run of the candidate was ever placed.
func started(c *compute.Candidate) bool {
	for i := range c.Runs {
		run := &c.Runs[i]
		if run.Status == compute.StatusStarting || run.Status == compute.StatusRunning || run.Duration > 0 {
			return true
		}
	}
	return false
}

// current returns the run of the candidate that is not over and has its turn.
func current(c *compute.Candidate) *compute.CandidateRun {
	for i := range c.Runs {
		if s := c.Runs[i].Status; !s.Terminal() && s != compute.StatusPending {
			return &c.Runs[i]
		}
	}
	return nil
}

// late returns the stop of a candidate that is out of time. Answer says
// whether there is something to recommend, active whether any candidate that
// has started goes on.
func (r *Live) late(c *compute.Candidate, answer, active bool) (compute.CandidateStop, bool) {
	run := current(c)
	if run == nil {
		return compute.CandidateStop{}, false
	}
	within, out := r.outOfTime(c, answer && !active)
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
	case r.Deadline > 0 && answer:
		stop.Detail = fmt.Sprintf("still running at the deadline of %s", r.Deadline)
		if part := r.Progress[run.Execution].part(); part > 0 {
			stop.Detail += fmt.Sprintf(", at %.0f %%", 100*part)
		}
		return stop, true
	}
	return compute.CandidateStop{}, false
}

// outOfTime reports whether a candidate's run had to have started by now, and
// within what. Last says that all others have ended and there is an answer.
func (r *Live) outOfTime(c *compute.Candidate, last bool) (within string, out bool) {
	if r.Deadline > 0 {
		return r.Deadline.String(), r.Now.Sub(r.Created) >= r.Deadline
	}
	since := max(r.Created, lastEnd(c), requeued(c))
	if r.Now.Sub(since) >= StartWithin {
		return StartWithin.String(), true
	}
	for i := range r.Candidates {
		since = max(since, lastEnd(&r.Candidates[i]), requeued(&r.Candidates[i]))
	}
	return Patience.String() + " of the others' end", last && r.Now.Sub(since) >= Patience
}

// lastEnd returns when the last of a candidate's runs that are over ended.
func lastEnd(c *compute.Candidate) compute.Instant {
	var end compute.Instant
	for i := range c.Runs {
		end = max(end, c.Runs[i].Finished)
	}
	return end
}

// requeued returns since when a candidate waits to begin anew, zero when it does
// not.
func requeued(c *compute.Candidate) compute.Instant {
	if run := current(c); run != nil && run.Status == compute.StatusQueued {
		return run.Requeued
	}
	return 0
}

// beaten returns the stop of candidate i when another one has certainly
// beaten it.
func (r *Live) beaten(i int, rows []compute.Standing) (compute.CandidateStop, bool) {
	c := &r.Candidates[i]
	run := current(c)
	if run == nil {
		return compute.CandidateStop{}, false
	}
	for j := range r.Candidates {
		if j == i || rows[j].Completed == 0 {
			continue
		}
		if stop, ok := r.beatenBy(run, rows[i], &r.Candidates[j], rows[j]); ok {
			return stop, true
		}
	}
	return compute.CandidateStop{}, false
}

// beatenBy returns the stop of the candidate whose turn run has, and which
// stands as own, when the other one has beaten it.
func (r *Live) beatenBy(run *compute.CandidateRun, own compute.Standing,
	other *compute.Candidate, its compute.Standing,
) (compute.CandidateStop, bool) {
	name := shortName(other.Profile)
	if own.Completed > 0 {
		if !r.worse(own.Duration, own.Credits, its, r.spread(own.Completed, its.Completed)) {
			return compute.CandidateStop{}, false
		}
		return compute.CandidateStop{
			Execution: run.Execution, Reason: compute.ReasonStoppedEarly,
			Detail: fmt.Sprintf("not repeated: %s s and %s credits against %s s and %s credits of %s",
				seconds(own.Duration), own.Credits, seconds(its.Duration), its.Credits, name),
		}, true
	}
	pace, known := r.Progress[run.Execution]
	if !known || run.Status != compute.StatusRunning {
		return compute.CandidateStop{}, false
	}
	reference, whole := r.reference(other)
	least, ok := pace.Least(reference, whole)
	if !ok || !r.worse(least, run.Price.Charge(least), its, r.spread(1, its.Completed)) {
		return compute.CandidateStop{}, false
	}
	return compute.CandidateStop{
		Execution: run.Execution, Reason: compute.ReasonStoppedEarly, Predicted: least,
		Detail: fmt.Sprintf("at %.0f %% after %s s: it would take at least %s s and %s credits, %s took %s s and %s",
			100*pace.part(), seconds(pace.Elapsed), seconds(least), run.Price.Charge(least),
			name, seconds(its.Duration), its.Credits),
	}, true
}

// reference returns the pace of a candidate's first completed run, and how
// long that took.
func (r *Live) reference(c *compute.Candidate) (Progress, time.Duration) {
	for i := range c.Runs {
		if c.Runs[i].Status == compute.StatusCompleted {
			return r.Progress[c.Runs[i].Execution], c.Runs[i].Duration
		}
	}
	return Progress{}, 0
}

// spread returns by how much, relatively, candidates with so many runs must
// differ before one is taken for worse. The one run of a candidate that is not
// repeated is what counts; with repeats it only estimates that.
func (r *Live) spread(a, b int) float64 {
	if r.Repeats <= 1 {
		return equalMargin
	}
	all := make([]measured, len(r.Candidates))
	for i := range r.Candidates {
		all[i] = measure(r.Objective, &r.Candidates[i])
	}
	deviation, _ := noise(all)
	return equalMargin + repeatsErrors*deviation*math.Sqrt(1/float64(a)+1/float64(b))
}

// worse reports whether a time and a price are worse than another candidate's
// by more than margin in all that the objective looks at.
func (r *Live) worse(d time.Duration, c compute.Credits, its compute.Standing, margin float64) bool {
	slower := float64(d) > float64(its.Duration)*(1+margin)
	dearer := float64(c) > float64(its.Credits)*(1+margin)
	switch r.Objective {
	case compute.ObjectiveFastest:
		return slower
	case compute.ObjectiveCheapest:
		return dearer
	case compute.ObjectiveBalanced:
	}
	return slower && dearer
}
