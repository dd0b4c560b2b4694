package fsm_test

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// drain returns the command that drains n1 within a time.
func (w *world) drain(within time.Duration) command.DrainNode {
	return command.DrainNode{Actor: w.root, Node: w.node("n1").ID, Drained: true, Within: within}
}

// newDrainWorld returns a world in which n1 executes an execution that may
// restart and one that may not.
func newDrainWorld(t *testing.T) (w *world, moves, stays compute.ExecutionID) {
	w = newWorld(t)
	s := settings()
	s.PreemptMinRun, s.PreemptNotice, s.StopGrace = 5*time.Minute, 30*time.Second, 10*time.Second
	w.must(command.SetSettings{Term: 1, Settings: s})
	moves, stays = w.submit("l40s", preemptible), w.submit("l40s")
	w.place("n1", moves, stays)
	w.must(w.started(moves))
	w.must(w.started(stays))
	return w, moves, stays
}

func (w *world) tick() { w.must(command.Tick{Term: w.term}) }

// TestDrainWithADeadline follows a drain from its command to the removal of the
// node. Executions that may restart move at once, the rest ends at the
// deadline, and neither is charged.
func TestDrainWithADeadline(t *testing.T) {
	w, moves, stays := newDrainWorld(t)
	balance := w.account().Balance
	deadline := w.now.Add(10 * time.Minute)
	w.must(w.drain(10 * time.Minute))
	if n := w.node("n1"); !n.Drained || n.DrainBy != deadline {
		t.Fatalf("drained %t by %s, want by %s", n.Drained, n.DrainBy, deadline)
	}
	if a := w.attempt(moves); a.PreemptAt != w.now || a.Notice != 30*time.Second {
		t.Errorf("asked to make room at %s with %s notice", a.PreemptAt, a.Notice)
	}
	w.wantStatus(stays, compute.StatusRunning, compute.ReasonNone)
	w.must(w.yielded(moves, time.Minute))
	w.wantStatus(moves, compute.StatusQueued, compute.ReasonDrained)
	if a := w.attempt(moves); a.Reason != compute.ReasonDrained {
		t.Errorf("its attempt ended for %s", a.Reason)
	}
	w.pass(10*time.Minute - time.Second)
	w.tick()
	if w.view().DrainDue(w.now) || w.get(stays).Stop != compute.StopNone {
		t.Fatal("ended before the deadline")
	}
	if !w.view().DrainDue(deadline) {
		t.Error("not due at the deadline")
	}
	w.pass(time.Second)
	w.tick()
	if w.view().DrainDue(w.now) || w.get(stays).Stop != compute.StopGraceful {
		t.Fatalf("stopped as %v at the deadline", w.get(stays).Stop)
	}
	w.refused(command.RemoveNode{Actor: w.root, Node: w.node("n1").ID}, compute.CodeConflict, "node_busy")
	w.must(w.ended(stays, compute.StatusCancelled, 11*time.Minute))
	w.wantStatus(stays, compute.StatusSystemFailure, compute.ReasonDrained)
	if got := w.get(stays).Billed; got != 0 || w.account().Balance != balance {
		t.Errorf("billed %s; the balance went from %s to %s", got, balance, w.account().Balance)
	}
	w.must(command.RemoveNode{Actor: w.root, Node: w.node("n1").ID})
}

// TestEndBeforeDrainIsKept checks that code that ended by itself before the
// request to stop arrived keeps its own end, and is charged.
func TestEndBeforeDrainIsKept(t *testing.T) {
	w, _, stays := newDrainWorld(t)
	w.must(w.drain(time.Minute))
	w.pass(time.Minute)
	w.tick()
	w.must(w.ended(stays, compute.StatusCompleted, time.Minute))
	w.wantStatus(stays, compute.StatusCompleted, compute.ReasonNone)
	if w.get(stays).Billed == 0 {
		t.Error("not billed")
	}
}

// TestDrainMovesRetriable checks that an execution with retries left moves
// at once, like a preemptible one, and that this is not a retry. One without
// retries left stays until the deadline and ends then.
func TestDrainMovesRetriable(t *testing.T) {
	w := newTrustWorld(t)
	goes, spent := w.submit("t4", retries(1)), w.submit("t4", retries(1))
	w.place("n3", spent)
	w.must(w.lost(spent))
	w.place("n3", goes, spent)
	w.must(w.started(goes))
	w.must(w.started(spent))
	w.must(command.DrainNode{Actor: w.root, Node: w.node("n3").ID, Drained: true, Within: time.Minute})
	if w.attempt(goes).PreemptAt != w.now || !w.attempt(spent).PreemptAt.IsZero() {
		t.Errorf("asked to make room at %s and %s", w.attempt(goes).PreemptAt, w.attempt(spent).PreemptAt)
	}
	w.must(w.yielded(goes, time.Minute))
	w.wantStatus(goes, compute.StatusQueued, compute.ReasonDrained)
	if e := w.get(goes); e.Retries != 0 || e.Held == 0 {
		t.Errorf("%d retries used, %s held", e.Retries, e.Held)
	}
	w.pass(time.Minute)
	w.must(w.ended(spent, compute.StatusCancelled, time.Minute))
	w.wantStatus(spent, compute.StatusSystemFailure, compute.ReasonDrained)
	if n := w.node("n3"); n.UsedMemoryMiB != 0 {
		t.Errorf("%d MiB are in use", n.UsedMemoryMiB)
	}
	w.complete(goes, "n1", time.Second)
}

// TestDrainRequeuesUnstarted checks that an attempt that provably never
// started by the deadline is requeued without charge, and that one that may
// have started ends.
func TestDrainRequeuesUnstarted(t *testing.T) {
	stopped := func(ran bool) func(*world, compute.ExecutionID) command.Command {
		return func(w *world, id compute.ExecutionID) command.Command {
			c := w.ended(id, compute.StatusCancelled, 0)
			c.Outcome.Reason, c.Outcome.Ran = compute.ReasonStopped, ran
			if !ran {
				c.Outcome.StartedAt = 0
			}
			return c
		}
	}
	system := func(why compute.Reason) func(*world, compute.ExecutionID) command.Command {
		return func(w *world, id compute.ExecutionID) command.Command { return w.failed(id, why, 0) }
	}
	user := func(stop compute.Stop) func(*world, compute.ExecutionID) command.Command {
		return func(w *world, id compute.ExecutionID) command.Command {
			w.must(command.StopExecution{Op: w.op(w.org, "stop"), Actor: w.ada, Execution: id, Stop: stop})
			return stopped(false)(w, id)
		}
	}
	broken := func(w *world, id compute.ExecutionID) command.Command {
		c := w.failed(id, compute.ReasonStartFailed, 0)
		c.Outcome.Status = compute.StatusFailed // The user's own file names.
		return c
	}
	lost := func(w *world, id compute.ExecutionID) command.Command { return w.lost(id) }
	tests := []struct {
		name   string
		word   func(*world, compute.ExecutionID) command.Command
		status compute.Status
		reason compute.Reason
	}{
		{"it never started", stopped(false), compute.StatusQueued, compute.ReasonDrained},
		{"it could not be started", system(compute.ReasonStartFailed), compute.StatusQueued, compute.ReasonDrained},
		{"it started", stopped(true), compute.StatusSystemFailure, compute.ReasonDrained},
		{"its supervisor was killed", system(compute.ReasonSupervisorLost), compute.StatusSystemFailure, compute.ReasonSupervisorLost},
		{"its node is lost", lost, compute.StatusSystemFailure, compute.ReasonNodeLost},
		{"its user stops it", user(compute.StopGraceful), compute.StatusCancelled, compute.ReasonStopped},
		{"its user aborts it", user(compute.StopHard), compute.StatusAborted, compute.ReasonAborted},
		{"it is wrong", broken, compute.StatusFailed, compute.ReasonStartFailed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newTrustWorld(t)
			balance := w.account().Balance
			id := w.submit("t4")
			w.place("n3", id)
			w.must(command.DrainNode{Actor: w.root, Node: w.node("n3").ID, Drained: true, Within: time.Minute})
			w.pass(time.Minute)
			w.tick()
			if e := w.get(id); e.Stop != compute.StopGraceful {
				t.Fatalf("at the deadline it is stopped as %v", e.Stop)
			}
			w.must(tt.word(w, id))
			w.wantStatus(id, tt.status, tt.reason)
			if got := w.account().Balance; got != balance {
				t.Errorf("the balance is %s, it was %s", got, balance)
			}
			if tt.status != compute.StatusQueued {
				return
			}
			if e := w.get(id); e.Stop != compute.StopNone || e.Retries != 0 || len(e.Avoid) != 0 {
				t.Errorf("queued again as %+v", e)
			}
			w.complete(id, "n1", time.Second)
		})
	}
}

// TestUserStopDuringDrain checks that a drain does not change the effect
// of a user's stop.
func TestUserStopDuringDrain(t *testing.T) {
	w, moves, _ := newDrainWorld(t)
	w.must(w.drain(time.Hour))
	w.must(command.StopExecution{Actor: w.ada, Execution: moves, Stop: compute.StopGraceful})
	w.must(w.ended(moves, compute.StatusCancelled, time.Minute))
	w.wantStatus(moves, compute.StatusCancelled, compute.ReasonStopped)
	if w.get(moves).Billed == 0 {
		t.Error("not billed")
	}
}

func TestDrainIsCancelled(t *testing.T) {
	for name, last := range map[string]func(*world) command.DrainNode{
		"by undrain": func(w *world) command.DrainNode {
			return command.DrainNode{Actor: w.root, Node: w.node("n1").ID}
		},
		"by a drain without a deadline": func(w *world) command.DrainNode { return w.drain(0) },
	} {
		t.Run(name, func(t *testing.T) {
			w, _, stays := newDrainWorld(t)
			w.must(w.drain(time.Minute))
			w.must(last(w))
			w.pass(time.Hour)
			w.tick()
			if w.view().DrainDue(w.now) || w.get(stays).Stop != compute.StopNone {
				t.Error("ended all the same")
			}
		})
	}
}

func TestDrainNotice(t *testing.T) {
	w, moves, _ := newDrainWorld(t)
	w.must(w.drain(5 * time.Second))
	if a := w.attempt(moves); a.Notice != 5*time.Second {
		t.Errorf("%s notice for a deadline in 5s", a.Notice)
	}
	for _, within := range []time.Duration{-1, 31 * 24 * time.Hour} {
		w.refused(w.drain(within), compute.CodeInvalid, "drain_deadline")
	}
	undrain := w.drain(time.Minute)
	undrain.Drained = false
	w.refused(undrain, compute.CodeInvalid, "drain_deadline")
}

// TestDrainWithADeadlineNeedsEveryServer checks that no deadline is accepted
// while an older server could not apply it.
func TestDrainWithADeadlineNeedsEveryServer(t *testing.T) {
	w := newWorld(t)
	if err := w.view().Allows(w.drain(0)); err != nil {
		t.Errorf("a drain without a deadline: %v", err)
	}
	if err := w.view().Allows(w.drain(time.Minute)); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("with a deadline: %v", err)
	}
}
