package fsm_test

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// preemptible makes an execution preemptible, with priority 10.
func preemptible(e *compute.Execution) { e.Preemptible, e.Priority = true, 10 }

func urgent(e *compute.Execution) { e.Priority = 60 }

// preempt preempts an execution's newest attempt for another execution, and
// reports whether the state did.
func (w *world) preempt(victim, head compute.ExecutionID) bool {
	w.Helper()
	w.must(command.CommitPlan{Term: w.term, Plan: compute.Plan{Preemptions: []compute.Preemption{
		{Execution: victim, Epoch: w.attempt(victim).Epoch, For: head},
	}}})
	return !w.attempt(victim).PreemptAt.IsZero()
}

// yielded returns a node's report that an attempt gave way after d.
func (w *world) yielded(id compute.ExecutionID, d time.Duration) command.FinishAttempt {
	w.Helper()
	c := w.ended(id, compute.StatusSystemFailure, d)
	c.Outcome.Reason = compute.ReasonPreempted
	return c
}

// newPreemptWorld returns a world with a preemptible execution that has run for
// ten minutes, five of them protected, and one that waits for its GPUs.
func newPreemptWorld(t *testing.T, change ...func(*compute.Execution)) (w *world, victim, head compute.ExecutionID) {
	w = newWorld(t)
	victim, head = w.contend(change...)
	return w, victim, head
}

// contend submits the executions that newPreemptWorld describes.
func (w *world) contend(change ...func(*compute.Execution)) (victim, head compute.ExecutionID) {
	w.Helper()
	s := settings()
	s.PreemptMinRun, s.PreemptNotice, s.StopGrace = 5*time.Minute, 30*time.Second, 10*time.Second
	w.must(command.SetSettings{Term: 1, Settings: s})
	victim = w.submit("h100.2x", append([]func(*compute.Execution){preemptible, func(e *compute.Execution) {
		e.Timeout = 2 * time.Hour
	}}, change...)...)
	w.place("n1", victim)
	w.must(w.started(victim))
	w.now = w.now.Add(5 * time.Minute)
	w.do()
	w.now = w.now.Add(5 * time.Minute)
	return victim, w.submit("h100", urgent)
}

// preemptAgain has an execution run for five more minutes, and preempts it for urgent
// work of its organization.
func (w *world) preemptAgain(id compute.ExecutionID) {
	w.Helper()
	w.place("n1", id)
	w.must(w.started(id))
	w.now = w.now.Add(5 * time.Minute)
	w.do()
	if !w.preempt(id, w.submit("h100.2x", urgent)) {
		w.Fatal("not preempted again")
	}
}

// newOwnWorld returns the world of newPreemptWorld with the newest format, and the
// execution that was preempted for another one of its organization.
func newOwnWorld(t *testing.T, change ...func(*compute.Execution)) (w *world, victim compute.ExecutionID) {
	w = newestWorld(t)
	victim, head := w.contend(change...)
	if !w.preempt(victim, head) {
		t.Fatal("not preempted")
	}
	w.must(command.StopExecution{Op: w.op(w.org, "x"), Actor: w.ada, Execution: head, Stop: compute.StopHard})
	return w, victim
}

// TestOwnWorkIsCharged checks that the use of an attempt is charged, once its execution
// has ended, if the organization's own work preempted it.
func TestOwnWorkIsCharged(t *testing.T) {
	const price, used = 2 * 900, 10 * 60
	stop := func(w *world, id compute.ExecutionID) {
		w.must(command.StopExecution{Op: w.op(w.org, "y"), Actor: w.ada, Execution: id, Stop: compute.StopHard})
	}
	tests := []struct {
		name   string
		end    func(w *world, id compute.ExecutionID)
		status compute.Status
		want   int64 // Seconds.
	}{
		{"aborted while it waits", stop, compute.StatusAborted, used},
		{"completed by its next attempt", func(w *world, id compute.ExecutionID) {
			w.complete(id, "n1", 3*time.Second)
		}, compute.StatusCompleted, used + 3},
		{"preempted again, and aborted", func(w *world, id compute.ExecutionID) {
			w.preemptAgain(id)
			w.must(w.yielded(id, 5*time.Minute))
			stop(w, id)
		}, compute.StatusAborted, used + 300},
		{"failed by the system in its next attempt", func(w *world, id compute.ExecutionID) {
			w.place("n1", id)
			c := w.ended(id, compute.StatusSystemFailure, time.Minute)
			c.Outcome.Reason = compute.ReasonSupervisorLost
			w.must(c)
		}, compute.StatusSystemFailure, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, victim := newOwnWorld(t)
			before := w.account().Held
			w.must(w.yielded(victim, used*time.Second))
			w.wantStatus(victim, compute.StatusQueued, compute.ReasonPreempted)
			w.wantMoney(100*compute.Credit, before+micro(price*used))
			tt.end(w, victim)
			if e := w.get(victim); e.Status != tt.status || e.Billed != micro(price*tt.want) {
				t.Errorf("%s, billed %s, want %s and %s", e.Status, e.Billed, tt.status, micro(price*tt.want))
			}
		})
	}
}

// TestOtherWorkIsFree checks that an attempt is free if another organization's
// work preempted it, or if the system failed after its own work had.
func TestOtherWorkIsFree(t *testing.T) {
	for _, own := range []bool{false, true} {
		w := newestWorld(t)
		victim, head := w.contend()
		if !own {
			c := w.python("h100")
			c.Actor, c.Op, c.Execution.Priority = w.other, w.op(w.other.Org, "h100"), 60
			head = w.must(c).Execution
		}
		if !w.preempt(victim, head) {
			t.Fatal("not preempted")
		}
		c := w.yielded(victim, 10*time.Minute)
		if own {
			c.Outcome.Reason = compute.ReasonSupervisorLost
		}
		w.must(c)
		w.wantStatus(victim, compute.StatusQueued, compute.ReasonPreempted)
		w.must(command.StopExecution{Op: w.op(w.org, "y"), Actor: w.ada, Execution: victim, Stop: compute.StopHard})
		if e := w.get(victim); e.Billed != 0 || e.Owed != 0 {
			t.Errorf("own work %v: billed %s", own, e.Billed)
		}
	}
}

// TestOwnWorkEndsWithTheCredits checks that an execution ends, charged, if its
// ceiling or its organization's credits do not pay for another attempt.
func TestOwnWorkEndsWithTheCredits(t *testing.T) {
	t.Run("ceiling", func(t *testing.T) {
		ceiling := micro(1800 * 910) // Ten minutes, five more, and the grace.
		w, victim := newOwnWorld(t, func(e *compute.Execution) { e.MaxCredits = ceiling })
		w.must(w.yielded(victim, 10*time.Minute))
		w.wantStatus(victim, compute.StatusQueued, compute.ReasonPreempted)
		if e := w.get(victim); e.Timeout != 5*time.Minute || e.Held != ceiling {
			t.Errorf("%s are left, %s held", e.Timeout, e.Held)
		}
		w.preemptAgain(victim)
		w.must(w.yielded(victim, 5*time.Minute+9500*time.Millisecond))
		w.wantStatus(victim, compute.StatusCancelled, compute.ReasonCredits)
		if e := w.get(victim); e.Billed != micro(1800*909+900) || !e.Ran {
			t.Errorf("billed %s", e.Billed)
		}
	})
	t.Run("credits", func(t *testing.T) {
		w, victim := newOwnWorld(t)
		for w.account().Available() > micro(1800*600) {
			again := w.python("h100")
			again.Execution.Timeout = time.Duration(min(int64(w.account().Available())/900-10, 3600)) * time.Second
			w.must(again)
		}
		w.must(w.yielded(victim, 10*time.Minute))
		w.wantStatus(victim, compute.StatusCancelled, compute.ReasonCredits)
		if e := w.get(victim); e.Billed != micro(1800*600) {
			t.Errorf("billed %s", e.Billed)
		}
	})
}

// TestPreemptedIsQueuedAgainAndChargedOnce follows a preemption from its
// command to the end of the execution.
func TestPreemptedIsQueuedAgainAndChargedOnce(t *testing.T) {
	w, victim, head := newPreemptWorld(t)
	before, submitted := w.account().Held, w.get(victim).SubmitIndex
	if !w.preempt(victim, head) {
		t.Fatal("not preempted")
	}
	if a := w.attempt(victim); a.PreemptAt != w.now || a.Notice != 30*time.Second {
		t.Errorf("asked at %s with %s notice", a.PreemptAt, a.Notice)
	}
	w.wantStatus(victim, compute.StatusRunning, compute.ReasonPreempted)
	w.must(w.yielded(victim, 10*time.Minute))
	w.wantStatus(victim, compute.StatusQueued, compute.ReasonPreempted)
	e, a := w.get(victim), w.attempt(victim)
	if e.SubmitIndex != submitted || !e.StartedAt.IsZero() || !e.PlacedAt.IsZero() || e.Ran {
		t.Errorf("queued again as %+v", e)
	}
	if a.Status != compute.StatusSystemFailure || a.Reason != compute.ReasonPreempted || !a.Ended {
		t.Errorf("the attempt ended as %s for %s", a.Status, a.Reason)
	}
	w.wantMoney(100*compute.Credit, before)
	w.place("n1", head)
	w.must(w.ended(head, compute.StatusCompleted, time.Second))
	w.complete(victim, "n1", 3*time.Second)
	if e := w.get(victim); e.Epoch != 2 || e.Billed != micro(2*900*3) {
		t.Errorf("after attempt %d it was billed %s, want the last one's 3 s", e.Epoch, e.Billed)
	}
	free := false
	for l := range w.view().Ledger(w.org, 0) {
		free = free || l.Execution == victim && l.Epoch == 1 && l.Note == "free: the attempt was preempted"
	}
	if !free {
		t.Error("the ledger does not say that the first attempt was free")
	}
}

func TestUnpreemptible(t *testing.T) {
	tests := []struct {
		name    string
		change  func(*compute.Execution)
		prepare func(w *world, victim, head compute.ExecutionID)
	}{
		{"not preemptible", func(e *compute.Execution) { e.Preemptible = false }, nil},
		{"of the same priority", func(e *compute.Execution) { e.Priority = 60 }, nil},
		{"the work is gone", nil, func(w *world, _, head compute.ExecutionID) {
			w.must(command.StopExecution{Op: w.op(w.org, "x"), Actor: w.ada, Execution: head, Stop: compute.StopHard})
		}},
		{"stopped by its user", nil, func(w *world, victim, _ compute.ExecutionID) {
			w.must(command.StopExecution{Op: w.op(w.org, "x"), Actor: w.ada, Execution: victim, Stop: compute.StopGraceful})
		}},
		{"within its minimum run time", nil, func(w *world, victim, head compute.ExecutionID) {
			w.preempt(victim, head)
			w.must(w.yielded(victim, time.Second))
			w.place("n1", victim)
			w.now = w.now.Add(5 * time.Minute)
			w.must(w.started(victim))
			w.now = w.now.Add(5*time.Minute - time.Millisecond)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, victim, head := newPreemptWorld(t, or(tt.change))
			if tt.prepare != nil {
				tt.prepare(w, victim, head)
			}
			if w.preempt(victim, head) {
				t.Error("preempted")
			}
		})
	}
}

// TestEndsOfPreempted checks that a preempted execution is requeued unless
// its code ended by itself or its user stopped it.
func TestEndsOfPreempted(t *testing.T) {
	tests := []struct {
		name   string
		end    func(w *world, id compute.ExecutionID)
		status compute.Status
		reason compute.Reason
	}{
		{"it finished first", func(w *world, id compute.ExecutionID) {
			w.must(w.ended(id, compute.StatusCompleted, time.Second))
		}, compute.StatusCompleted, compute.ReasonNone},
		{"it failed first", func(w *world, id compute.ExecutionID) {
			c := w.ended(id, compute.StatusFailed, time.Second)
			c.Outcome.Reason = compute.ReasonExitCode
			w.must(c)
		}, compute.StatusFailed, compute.ReasonExitCode},
		{"its user aborts it meanwhile", func(w *world, id compute.ExecutionID) {
			w.must(command.StopExecution{Op: w.op(w.org, "x"), Actor: w.ada, Execution: id, Stop: compute.StopHard})
			w.must(w.yielded(id, time.Second))
		}, compute.StatusAborted, compute.ReasonAborted},
		{"its supervisor was killed", func(w *world, id compute.ExecutionID) {
			c := w.ended(id, compute.StatusSystemFailure, time.Second)
			c.Outcome.Reason = compute.ReasonSupervisorLost
			w.must(c)
		}, compute.StatusQueued, compute.ReasonPreempted},
		{"its node is lost", func(w *world, id compute.ExecutionID) {
			a := w.attempt(id)
			w.must(command.LoseAttempts{Term: w.term, Node: a.Node, Attempts: []command.AttemptRef{{Execution: id, Epoch: a.Epoch}}})
		}, compute.StatusQueued, compute.ReasonPreempted},
		{"a new leader takes over", func(w *world, id compute.ExecutionID) {
			w.term++ // Only the epoch fences the node's report.
			w.must(w.yielded(id, time.Second))
		}, compute.StatusQueued, compute.ReasonPreempted},
		{"the report of its end comes twice", func(w *world, id compute.ExecutionID) {
			c := w.yielded(id, time.Second)
			w.must(c)
			w.refused(c, compute.CodeConflict, "stale_attempt")
		}, compute.StatusQueued, compute.ReasonPreempted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, victim, head := newPreemptWorld(t)
			if !w.preempt(victim, head) {
				t.Fatal("not preempted")
			}
			tt.end(w, victim)
			w.wantStatus(victim, tt.status, tt.reason)
		})
	}
}

// TestUnrequestedPreemption checks that a node that reports a preemption that
// the state did not request ends the execution with a system failure, unbilled.
func TestUnrequestedPreemption(t *testing.T) {
	w, victim, _ := newPreemptWorld(t)
	w.must(w.yielded(victim, time.Second))
	w.wantStatus(victim, compute.StatusSystemFailure, compute.ReasonPreempted)
	if e := w.get(victim); e.Billed != 0 {
		t.Errorf("billed %s", e.Billed)
	}
}
