package fsm_test

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// service starts a service of two replicas, with back-offs of 10 s to 40 s.
func (w *world) service(change ...func(*compute.Execution)) compute.ExecutionID {
	w.Helper()
	return w.submit("cpu", append([]func(*compute.Execution){func(e *compute.Execution) {
		e.Kind, e.Timeout = compute.KindService, 0
		e.Serving = &compute.Serving{Port: 8000, HealthPath: "/health", ReadinessTimeout: time.Minute}
		e.Service = &compute.Service{
			Replicas: 2, BackoffFirst: 10 * time.Second, BackoffMost: 40 * time.Second, BackoffReset: 10 * time.Minute,
		}
	}}, change...)...)
}

// reconcile creates the missing replicas of a service, as the leader does, and returns
// their number.
func (w *world) reconcile(id compute.ExecutionID) int {
	w.Helper()
	missing, _ := w.get(id).Service.Missing(w.now)
	c := command.StartReplicas{Term: w.term, Service: id}
	for _, n := range missing {
		c.Replicas = append(c.Replicas, command.NewReplica{Number: n, ID: w.executionID()})
	}
	return w.must(c).Count
}

// replica returns the newest replica in a slot, from 1.
func (w *world) replica(id compute.ExecutionID, slot int) compute.ExecutionID {
	w.Helper()
	return w.get(id).Service.Slots[slot-1].Replica
}

// run places the replicas of a service and starts them.
func (w *world) run(id compute.ExecutionID) {
	w.Helper()
	w.reconcile(id)
	for _, slot := range w.get(id).Service.Slots {
		if w.get(slot.Replica).Status == compute.StatusQueued {
			w.place("n3", slot.Replica)
			w.must(w.started(slot.Replica))
		}
	}
}

func (w *world) setReady(id compute.ExecutionID, ready bool) command.SetReady {
	a := w.attempt(id)
	return command.SetReady{Node: a.Node, Execution: id, Epoch: a.Epoch, Ready: ready}
}

func TestServiceRuns(t *testing.T) {
	w := newestWorld(t)
	id := w.service()
	w.wantStatus(id, compute.StatusPending, compute.ReasonScheduling)
	w.run(id)
	w.wantStatus(id, compute.StatusRunning, compute.ReasonNone)
	first := w.replica(id, 1)
	if e := w.get(first); e.Kind != compute.KindReplica || e.Timeout != compute.Unlimited || e.Parent != id ||
		e.Serving.Port != 8000 {
		t.Errorf("a replica is %+v", e)
	}
	if n := w.reconcile(id); n != 0 {
		t.Errorf("%d replicas too many", n)
	}
	w.must(w.setReady(first, true))
	if e := w.get(first); !e.Ready || e.ReadyAt != w.now {
		t.Errorf("ready is %v since %v", e.Ready, e.ReadyAt)
	}
	stale := w.setReady(first, false)
	stale.Epoch++
	w.refused(stale, compute.CodeConflict, "stale_attempt")
	w.pass(time.Minute)
	w.must(command.StopExecution{Op: w.op(w.org, "stop"), Actor: w.ada, Execution: id, Stop: compute.StopGraceful})
	for slot := range 2 {
		w.must(w.ended(w.replica(id, slot+1), compute.StatusCancelled, time.Minute))
	}
	w.wantStatus(id, compute.StatusCancelled, compute.ReasonStopped)
	e := w.get(first)
	if e.Ready || e.Reason != compute.ReasonParentEnded || w.get(id).Billed != 2*e.Billed || e.Billed == 0 {
		t.Errorf("the replica ended as %s for %s, billed %s of %s", e.Status, e.Reason, e.Billed, w.get(id).Billed)
	}
}

// TestCrashBackoff restarts a replica after 10, 20, 40 and 40 s, and after 10 s once it
// has run for long.
func TestCrashBackoff(t *testing.T) {
	w := newestWorld(t)
	id := w.service()
	for i, step := range []struct{ ran, wait time.Duration }{
		{time.Second, 10 * time.Second},
		{time.Second, 20 * time.Second},
		{time.Second, 40 * time.Second},
		{time.Second, 40 * time.Second},
		{10 * time.Minute, 10 * time.Second},
	} {
		w.run(id)
		w.must(w.ended(w.replica(id, 1), compute.StatusFailed, step.ran))
		slot := w.get(id).Service.Slots[0]
		if slot.NextAt != w.now.Add(step.wait) || slot.Live || slot.Restarts != i {
			t.Fatalf("after end %d the slot is %+v, want a wait of %s", i+1, slot, step.wait)
		}
		w.pass(step.wait - time.Second)
		if n := w.reconcile(id); n != 0 {
			t.Fatalf("%d replicas before the back-off is over", n)
		}
		w.pass(time.Second)
	}
	w.wantStatus(id, compute.StatusRunning, compute.ReasonNone)
}

// TestRestartPolicies ends replicas by policy: does the service go on, and how does it
// end if not?
func TestRestartPolicies(t *testing.T) {
	for _, test := range []struct {
		restart compute.Restart
		ends    compute.Status
		want    compute.Status
		reason  compute.Reason
	}{
		{compute.RestartAlways, compute.StatusCompleted, compute.StatusRunning, compute.ReasonNone},
		{compute.RestartOnFailure, compute.StatusFailed, compute.StatusRunning, compute.ReasonNone},
		{compute.RestartOnFailure, compute.StatusCompleted, compute.StatusCompleted, compute.ReasonNone},
		{compute.RestartNever, compute.StatusFailed, compute.StatusFailed, compute.ReasonReplicasEnded},
		{compute.RestartNever, compute.StatusCompleted, compute.StatusCompleted, compute.ReasonNone},
	} {
		w := newestWorld(t)
		id := w.service(func(e *compute.Execution) { e.Service.Restart = test.restart })
		w.run(id)
		for slot := range 2 {
			w.must(w.ended(w.replica(id, slot+1), test.ends, time.Second))
		}
		w.wantStatus(id, test.want, test.reason)
	}
}

func TestScaleService(t *testing.T) {
	w := newestWorld(t)
	id := w.service()
	w.run(id)
	scale := func(n int) command.ScaleService {
		return command.ScaleService{Op: w.op(w.org, "scale"), Actor: w.ada, Service: id, Replicas: n}
	}
	w.must(scale(3))
	w.run(id)
	w.must(scale(1))
	for slot := 2; slot <= 3; slot++ {
		w.must(w.ended(w.replica(id, slot), compute.StatusCancelled, time.Second))
		if slot == 2 && len(w.get(id).Service.Slots) != 3 {
			t.Error("a slot in front of a live one was dropped")
		}
	}
	if svc := w.get(id).Service; len(svc.Slots) != 1 || svc.Live != 1 {
		t.Errorf("scaled down it is %+v", svc)
	}
	w.must(scale(0))
	w.must(w.ended(w.replica(id, 1), compute.StatusCancelled, time.Second))
	w.wantStatus(id, compute.StatusRunning, compute.ReasonNone)
	if n := w.reconcile(id); n != 0 {
		t.Errorf("%d replicas of none", n)
	}
	w.must(scale(1))
	w.run(id)
	many, foreign := scale(65), scale(2)
	many.Op, foreign.Op, foreign.Actor = command.Op{}, command.Op{}, w.other
	w.refused(many, compute.CodeInvalid, "replicas")
	w.refused(foreign, compute.CodeNotFound, "execution_not_found")
}

// newReplicaWorld returns a world of a format in which an organization has credits for
// so many minutes of a replica.
func newReplicaWorld(t *testing.T, minutes compute.Credits, known uint64) *world {
	w := newEmptyWorld(t)
	w.format = format.Newest
	s := settings()
	s.SignupGrant = minutes * 60 * 15
	w.bootstrap(s)
	w.addNode("n3", "t4")
	w.ada = w.addUser("ada")
	w.org = w.ada.Org
	w.must(command.SetFormat{Term: w.term, Format: known})
	return w
}

// oneReplica runs a service with one replica.
func (w *world) oneReplica() (id, replica compute.ExecutionID) {
	id = w.service(func(e *compute.Execution) { e.Service.Replicas = 1 })
	w.run(id)
	return id, w.replica(id, 1)
}

// TestDrainingReplicaPays extends the hold of a replica that finishes its requests after
// the request to stop, until the credits end: then it drains no longer. Formats before
// extend no hold of a stopping replica.
func TestDrainingReplicaPays(t *testing.T) {
	for name, test := range map[string]struct {
		minutes compute.Credits // That the organization can pay.
		format  uint64
		held    compute.Credits // Minutes, after 18.
		reason  compute.Reason
	}{
		"enough":   {100, format.Newest, 20, compute.ReasonNone},
		"too few":  {15, format.Newest, 10, compute.ReasonCredits},
		"format13": {100, 13, 10, compute.ReasonNone},
	} {
		t.Run(name, func(t *testing.T) {
			w := newReplicaWorld(t, test.minutes, test.format)
			id, replica := w.oneReplica()
			w.must(w.setReady(replica, true))
			w.pass(time.Minute)
			w.must(command.ScaleService{Op: w.op(w.org, "scale"), Actor: w.ada, Service: id})
			for range 17 {
				w.pass(time.Minute)
			}
			e := w.get(replica)
			if e.Stop != compute.StopGraceful || e.Reason != test.reason || e.Held < test.held*60*15 || e.Held > (test.held+9)*60*15 {
				t.Errorf("after 18 minutes it stops %d for %q and holds %s, want %s", e.Stop, e.Reason, e.Held, test.held*60*15)
			}
			ran := min(18*time.Minute, time.Duration(e.Held)/(60*15)*time.Minute)
			w.must(w.ended(replica, compute.StatusCancelled, ran))
			if e := w.get(replica); e.Billed != compute.Credits(ran/time.Second)*15 || w.account().Held != 0 {
				t.Errorf("it is charged %s for %s, and %s stay held", e.Billed, ran, w.account().Held)
			}
			want := compute.StatusRunning
			if test.reason == compute.ReasonCredits {
				want = compute.StatusCancelled
			}
			w.wantStatus(id, want, test.reason)
		})
	}
}

// TestServiceCredits extends holds by ten minutes, warns when they do not pay for
// another extension, and stops the service when they end. Nothing is overdrawn.
func TestServiceCredits(t *testing.T) {
	w := newReplicaWorld(t, 25, format.Newest)
	id, replica := w.oneReplica()
	if held := w.get(replica).Held; held != 10*60*15 {
		t.Errorf("at first %s are held", held)
	}
	warned := compute.Instant(0)
	for range 60 {
		w.pass(30 * time.Second)
		w.must(command.Tick{Term: w.term})
		e := w.get(replica)
		if warned.IsZero() && !e.CreditsEnd.IsZero() {
			warned = w.now
		}
		if e.Stop != compute.StopNone {
			break
		}
	}
	e := w.get(replica)
	if e.Stop != compute.StopGraceful || e.Reason != compute.ReasonCredits || warned.IsZero() || w.now.Sub(warned) < 5*time.Minute {
		t.Fatalf("stopped %d for %s at %v, warned at %v", e.Stop, e.Reason, w.now, warned)
	}
	w.must(w.ended(replica, compute.StatusCancelled, w.now.Sub(e.StartedAt)))
	w.wantStatus(id, compute.StatusCancelled, compute.ReasonCredits)
	if a := w.account(); a.Balance < 0 || a.Held != 0 {
		t.Errorf("the balance is %s with %s held", a.Balance, a.Held)
	}
}

// TestServicePaidApart checks that a service goes on whose replica a cut-off node has stopped at the end
// of the credits that it knew of, if more were set aside meanwhile.
func TestServicePaidApart(t *testing.T) {
	w := newReplicaWorld(t, 25, format.Newest)
	id, replica := w.oneReplica()
	for w.get(replica).CreditsEnd.IsZero() {
		w.pass(30 * time.Second)
		w.must(command.Tick{Term: w.term})
	}
	known := w.get(replica).CreditsEnd
	w.must(command.Grant{Actor: w.root, Org: w.org, Amount: compute.Credit})
	for w.now < known {
		w.pass(30 * time.Second)
		w.must(command.Tick{Term: w.term})
	}
	e := w.get(replica)
	end := w.ended(replica, compute.StatusCancelled, 0)
	end.Outcome.Duration, end.Outcome.EndedAt = w.now.Sub(e.StartedAt), w.now
	end.Outcome.Reason = compute.ReasonCredits
	w.must(end)
	if parent := w.get(id); parent.Stop != compute.StopNone || parent.Status.Terminal() {
		t.Errorf("the service is %s (%s), stop %d", parent.Status, parent.Reason, parent.Stop)
	}
	w.wantStatus(replica, compute.StatusQueued, compute.ReasonRetry)
}

// TestLostReplicaIsPlacedAgain requeues a replica whose node is lost: it is not ready
// then, and it is the same execution.
func TestLostReplicaIsPlacedAgain(t *testing.T) {
	w := newestWorld(t)
	id := w.service()
	w.run(id)
	replica := w.replica(id, 1)
	w.must(w.setReady(replica, true))
	w.must(w.lost(replica))
	if e := w.get(replica); e.Status != compute.StatusQueued || e.Ready || w.replica(id, 1) != replica {
		t.Errorf("it is %s, ready: %v", e.Status, e.Ready)
	}
}

// TestOldReplicasLeaveTheState archives replicas that their service does not name any
// more, while the service runs.
func TestOldReplicasLeaveTheState(t *testing.T) {
	w := newestWorld(t)
	id := w.service(func(e *compute.Execution) { e.Service.Replicas = 1 })
	var all []compute.ExecutionID
	for range 4 {
		w.run(id)
		all = append(all, w.replica(id, 1))
		w.must(w.ended(w.replica(id, 1), compute.StatusFailed, time.Second))
		w.pass(time.Minute)
	}
	w.retain(time.Hour, 0)
	w.pass(48 * time.Hour)
	if n := w.archiveAll(library{}); n != 2 {
		t.Errorf("%d replicas are archived, want the first two of %d", n, len(all))
	}
}

func TestServiceIsRefused(t *testing.T) {
	w := newestWorld(t)
	for detail, change := range map[string]func(*compute.Execution){
		"service":           func(e *compute.Execution) { e.Serving = nil },
		"port":              func(e *compute.Execution) { e.Serving.Port = 0 },
		"health_path":       func(e *compute.Execution) { e.Serving.HealthPath = "/a b" },
		"readiness_timeout": func(e *compute.Execution) { e.Serving.ReadinessTimeout = 0 },
		"replicas":          func(e *compute.Execution) { e.Service.Replicas = 65 },
		"restart":           func(e *compute.Execution) { e.Service.Restart = 3 },
		"backoff":           func(e *compute.Execution) { e.Service.BackoffMost = 0 },
		"max_credits":       func(e *compute.Execution) { e.MaxCredits = 1 },
		"kind":              func(e *compute.Execution) { e.Kind = compute.KindReplica },
	} {
		c := w.python("cpu")
		e := w.get(w.service())
		c.Execution.Kind, c.Execution.Serving, c.Execution.Service = e.Kind, &compute.Serving{}, &compute.Service{}
		*c.Execution.Serving, *c.Execution.Service = *e.Serving, *e.Service
		c.Op = command.Op{}
		change(&c.Execution)
		w.refused(c, compute.CodeInvalid, detail)
	}
}
