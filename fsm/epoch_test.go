package fsm_test

import (
	"strings"
	"testing"
	"time"

	"berth/attempt"
	"berth/compute"
	"berth/fsm/command"
)

// raiseEpoch returns the command that begins the next epoch of the cluster.
func (w *world) raiseEpoch() command.RaiseEpoch {
	return command.RaiseEpoch{Term: w.term, Epoch: w.view().ClusterEpoch() + 1, Cause: command.CauseRestored}
}

// TestEpochEndsLiveAttempts checks that attempts of the previous epoch end
// unbilled, that waiting executions keep waiting, and that reports on the
// previous epoch have no effect.
func TestEpochEndsLiveAttempts(t *testing.T) {
	w := newWorld(t)
	starting, running, waiting := w.submit("t4"), w.submit("t4"), w.submit("t4")
	w.place("n3", starting, running)
	w.must(w.started(running))
	late := w.ended(running, compute.StatusCompleted, time.Second)
	before := w.account().Balance

	if r := w.must(w.raiseEpoch()); r.Count != 2 {
		t.Errorf("%d attempts ended, want 2", r.Count)
	}
	for _, id := range []compute.ExecutionID{starting, running} {
		w.wantStatus(id, compute.StatusSystemFailure, compute.ReasonNodeLost)
		if e := w.get(id); e.Billed != 0 || !strings.Contains(e.Detail, "restored from a backup") {
			t.Errorf("billed %s, detail %q", e.Billed, e.Detail)
		}
	}
	w.wantStatus(waiting, compute.StatusQueued, compute.ReasonScheduling)
	if a := w.account(); a.Balance != before || a.Held != w.get(waiting).Held {
		t.Errorf("balance %s, held %s; want %s and what the one that waits holds", a.Balance, a.Held, before)
	}
	w.refused(late, compute.CodeConflict, "stale_attempt")
	if n := w.node("n3"); n.State != compute.NodeDown {
		t.Errorf("a node that nobody has heard is %s", n.State)
	}
	w.must(command.SetNodeState{Term: w.term, Node: w.node("n3").ID, State: compute.NodeUp})
	w.complete(waiting, "n3", time.Second)
	if a := w.attempt(waiting); a.Epoch != 1<<32+1 {
		t.Errorf("the first attempt of the new epoch has epoch %d", a.Epoch)
	}
}

// TestEpochRetriesLiveAttempts checks that an execution with retries left waits
// for its next attempt, unbilled, as after the loss of a node. One without
// retries left, or one that is being stopped, ends.
func TestEpochRetriesLiveAttempts(t *testing.T) {
	w := newTrustWorld(t)
	goes, spent, stopped := w.submit("t4", retries(1)), w.submit("t4", retries(1)), w.submit("t4", retries(1))
	held := w.account().Held
	w.place("n3", goes, spent)
	w.must(w.lost(spent))
	w.place("n1", stopped)
	w.place("n2", spent)
	w.must(w.started(goes))
	w.must(command.StopExecution{Actor: w.ada, Execution: stopped, Stop: compute.StopGraceful})
	late := w.ended(goes, compute.StatusCompleted, time.Minute)

	if r := w.must(w.raiseEpoch()); r.Count != 3 {
		t.Errorf("%d attempts ended, want 3", r.Count)
	}
	w.wantStatus(goes, compute.StatusQueued, compute.ReasonRetry)
	w.wantStatus(spent, compute.StatusSystemFailure, compute.ReasonNodeLost)
	w.wantStatus(stopped, compute.StatusSystemFailure, compute.ReasonNodeLost)
	if e := w.get(goes); e.Retries != 1 {
		t.Errorf("it had %d retries, want 1", e.Retries)
	}
	w.wantMoney(100*compute.Credit, held/3)
	w.refused(late, compute.CodeConflict, "stale_attempt")
	w.must(command.SetNodeState{Term: w.term, Node: w.node("n3").ID, State: compute.NodeUp})
	w.complete(goes, "n3", time.Second)
	if a := w.attempt(goes); a.Epoch != 1<<32+1 {
		t.Errorf("the attempt has epoch %d", a.Epoch)
	}
	if err := w.view().Check(); err != nil {
		t.Error(err)
	}
}

// TestEpochOfAttempts checks that a node cannot mistake an attempt of the
// previous epoch on its disk for one of this epoch, even when the execution is
// placed repeatedly.
func TestEpochOfAttempts(t *testing.T) {
	w := newWorld(t)
	id := w.submit("t4", func(e *compute.Execution) { e.Preemptible = true })
	w.place("n3", id)
	w.must(w.started(id))
	urgent := w.submit("t4.4x", func(e *compute.Execution) { e.Priority = 9 })
	w.must(command.CommitPlan{Term: w.term, Plan: compute.Plan{Preemptions: []compute.Preemption{
		{Execution: id, Epoch: 1, For: urgent},
	}}})
	waits := w.submit("t4")
	w.must(w.raiseEpoch()) // It was preempted, and may be disconnected for longer than the leader pauses.
	w.wantStatus(id, compute.StatusSystemFailure, compute.ReasonNodeLost)
	w.must(w.raiseEpoch())
	w.must(command.SetNodeState{Term: w.term, Node: w.node("n3").ID, State: compute.NodeUp})
	id = waits
	w.place("n3", id)
	if a := w.attempt(id); a.Epoch != 2<<32+1 {
		t.Errorf("the attempt has epoch %d", a.Epoch)
	}
}

// TestEpochForgetsCredentials checks that credentials that may have been
// revoked since the backup become invalid. API keys stay.
func TestEpochForgetsCredentials(t *testing.T) {
	w := full(t)
	w.must(w.raiseEpoch())
	v := w.view()
	for token := range v.JoinTokens() {
		t.Errorf("join token %s is good", token.ID)
	}
	if _, known := v.Refresh(hash("2")); known || len(v.SigningKeys()) > 0 {
		t.Error("a previous login is valid")
	}
	w.refused(command.RotateRefresh{Old: hash("2"), Next: compute.RefreshToken{Hash: hash("3")}},
		compute.CodeUnauthenticated, "token_expired")
	if len(v.Keys(w.org)) == 0 {
		t.Error("the API keys are gone")
	}
	w.must(command.AddSigningKey{Term: w.term, Key: compute.SigningKey{ID: "next", Public: []byte{1}, Sealed: []byte{2}}})
}

// TestEpochIsNoMassFailure checks that the nodes, which are all down from the
// epoch on until they are heard, do not activate the brake.
func TestEpochIsNoMassFailure(t *testing.T) {
	w := newTrustWorld(t)
	w.must(w.raiseEpoch())
	if gone := w.view().Vanished(); len(gone) != 0 {
		t.Errorf("%d nodes vanished at once", len(gone))
	}
}

// TestEpochPausesPlacement checks that placement pauses until attempts of the
// previous epoch that may be retried have had time to end. The length of the
// time without a leader makes no difference.
func TestEpochPausesPlacement(t *testing.T) {
	w := newTrustWorld(t)
	if got := w.view().PausedUntil(); !got.IsZero() {
		t.Errorf("the first epoch pauses until %s", got)
	}
	next := w.raiseEpoch()
	next.At = w.now.Add(72 * time.Hour)
	next.Cause = command.CauseRecovered
	w.must(next)
	if got, want := w.view().PausedUntil(), next.At.Add(attempt.Lease+attempt.Margin); got != want {
		t.Errorf("it pauses until %s, want %s", got, want)
	}
	if got := w.view().Now(); got != w.now {
		t.Errorf("the clock of a leader raised the state's from %s to %s", w.now, got)
	}
}

// TestEpochInTheLedger checks that each organization's ledger records the fork
// and still adds up.
func TestEpochInTheLedger(t *testing.T) {
	w := full(t)
	w.must(w.raiseEpoch())
	for _, org := range []compute.OrgID{w.ada.Org, w.other.Org} {
		var last *compute.LedgerEntry
		for e := range w.view().Ledger(org, 0) {
			last = e
		}
		if last.Kind != compute.LedgerFork || last.Amount != 0 || last.Note != "cluster epoch 1: restored from a backup" {
			t.Errorf("the last line is %+v", last)
		}
		if err := w.view().VerifyLedger(org); err != nil {
			t.Error(err)
		}
	}
}

func TestEpochOnlyRises(t *testing.T) {
	w := newWorld(t)
	id := w.submit("t4")
	first := w.raiseEpoch()
	first.At = w.now.Add(48 * time.Hour)
	w.must(first)
	if got := w.view().Now(); got != first.At {
		t.Errorf("the clock says %s, want %s", got, first.At)
	}
	w.now = first.At
	w.must(command.SetNodeState{Term: w.term, Node: w.node("n3").ID, State: compute.NodeUp})
	w.place("n3", id)
	if r := w.must(first); !r.Repeat {
		t.Errorf("the same epoch began twice: %+v", r)
	}
	w.wantStatus(id, compute.StatusStarting, compute.ReasonNone)
	w.refused(command.RaiseEpoch{Term: w.term, Epoch: 2}, compute.CodeInvalid, "cause")
	w.refused(command.RaiseEpoch{Term: w.term, Epoch: 1 << 31, Cause: command.CauseRecovered}, compute.CodeInvalid, "epoch")
	w.refused(command.RaiseEpoch{Epoch: 2, Cause: command.CauseRecovered}, compute.CodeConflict, "stale_term")
	if err := newWorld(t).view().Allows(first); err == nil {
		t.Error("it is allowed before every server knows it")
	}
}
