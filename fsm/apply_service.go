package fsm

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"berth/compute"
	"berth/fsm/charge"
	"berth/fsm/command"
	"berth/fsm/format"
)

// maxHealthPath bounds the path of a readiness probe, in bytes.
const maxHealthPath = 512

// maxBackoff bounds the times of a crash back-off.
const maxBackoff = 24 * time.Hour

// Services yields the parents of services that have not ended.
func (v *executionTables) Services() iter.Seq[*compute.Execution] { return v.byPriority(v.services) }

// AllowsServices returns the reason for which services may not yet be started.
func (v *View) AllowsServices() error { return v.allowsFormat(format.Services) }

// prepareService makes e the parent of a service: pending until the leader creates
// its replicas. Profile, request and price are those of each replica.
func (s *service) prepareService(e *compute.Execution) *compute.Error {
	if refusal := checkServing(e.Serving); refusal != nil {
		return refusal
	}
	asked := e.Service
	switch {
	case asked.Replicas < 1 || asked.Replicas > compute.MaxReplicas:
		return invalidReplicas(1)
	case asked.Restart > compute.RestartNever:
		return compute.Errorf(compute.CodeInvalid, "no such restart policy").Named("restart")
	case asked.BackoffFirst < 0 || asked.BackoffMost < asked.BackoffFirst || asked.BackoffMost > maxBackoff ||
		asked.BackoffReset < 0:
		return compute.Errorf(compute.CodeInvalid, "the times of the crash back-off are out of range").Named("backoff")
	case e.MaxCredits > 0:
		return compute.Errorf(compute.CodeInvalid, "a service has no ceiling of credits").Named("max_credits")
	}
	if refusal := s.deployment.prepareDeployment(e); refusal != nil {
		return refusal
	}
	e.Timeout = compute.Unlimited
	if refusal := s.execution.prepareSingle(e); refusal != nil {
		return refusal
	}
	e.Status, e.Reason = compute.StatusPending, compute.ReasonScheduling
	e.Service = &compute.Service{
		Replicas: asked.Replicas, Restart: asked.Restart,
		BackoffFirst: asked.BackoffFirst, BackoffMost: asked.BackoffMost, BackoffReset: asked.BackoffReset,
	}
	return nil
}

func invalidReplicas(least int) *compute.Error {
	return compute.Errorf(compute.CodeInvalid, "replicas is %d to %d", least, compute.MaxReplicas).Named("replicas")
}

// checkServing refuses ports, paths and times that no program could serve.
func checkServing(s *compute.Serving) *compute.Error {
	path := s.HealthPath
	switch {
	case s.Port < 1 || s.Port > compute.MaxPort:
		return compute.Errorf(compute.CodeInvalid, "port is 1 to %d", compute.MaxPort).Named("port")
	case len(path) > maxHealthPath || path != "" && !strings.HasPrefix(path, "/") ||
		strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return compute.Errorf(compute.CodeInvalid,
			"health_path begins with / and has no spaces").Named("health_path")
	case s.ReadinessTimeout <= 0 || s.ReadinessTimeout > compute.MaxReadinessTimeout:
		return compute.Errorf(compute.CodeInvalid, "readiness_timeout is above 0 and at most %s",
			compute.MaxReadinessTimeout).Named("readiness_timeout")
	}
	return nil
}

// firstHolds returns the sum of the holds of a service's first replicas.
func (s *service) firstHolds(e *compute.Execution) compute.Credits {
	replica := *e
	replica.Kind = compute.KindReplica
	return charge.FirstHold(&replica) * compute.Credits(e.Service.Replicas)
}

// serviceOf returns a copy of a live service that may be changed.
func (s *service) serviceOf(id compute.ExecutionID) (compute.Execution, *compute.Error) {
	known, ok := s.view.executions.Get(id)
	switch {
	case !ok || known.Kind != compute.KindService:
		return compute.Execution{}, compute.Errorf(compute.CodeNotFound, "service not found").Named("execution_not_found")
	case known.Status.Terminal():
		return compute.Execution{}, compute.Errorf(compute.CodeConflict,
			"the service has already ended as %s", known.Status).Named("already_ended")
	}
	return copyService(known), nil
}

// copyService returns a copy of the parent of a service that shares nothing with it
// that may be changed.
func copyService(known *compute.Execution) compute.Execution {
	e, svc := *known, *known.Service
	svc.Slots = slices.Clone(svc.Slots)
	e.Service = &svc
	if known.Deployment != nil {
		d := *known.Deployment
		e.Deployment = &d
	}
	return e
}

// startReplicas creates the next replicas of a service. Those whose slot has a
// replica or waits are left out.
func (s *service) startReplicas(c command.StartReplicas) command.Result {
	parent, refusal := s.serviceOf(c.Service)
	switch {
	case refusal != nil:
		return command.Result{Refusal: refusal}
	case parent.Stop != compute.StopNone:
		return refuse(compute.CodeConflict, "already_ended", "the service is being stopped")
	}
	needed, _ := parent.Service.Missing(s.view.meta.Now)
	n := 0
	for _, asked := range c.Replicas {
		at := slices.Index(needed, asked.Number)
		if at < 0 || s.view.executions.Has(asked.ID) || asked.ID.IsZero() {
			continue
		}
		needed = slices.Delete(needed, at, at+1)
		e, revision := replicaOf(&parent, asked.ID, s.view.meta.Index, s.view.meta.Now), parent.Service.Revision
		if d := parent.Deployment; asked.Number > parent.Service.Replicas && d != nil && d.Next != nil {
			_ = s.view.setInference(e, d.Next, d.NextVRAMMiB) // A model that fits no node waits.
			revision = d.Updates
		}
		amount := charge.FirstHold(e)
		if s.money.lacks(e, amount) != nil {
			if asked.Number > parent.Service.Replicas {
				continue // Those that are wanted go on.
			}
			if s.deployment.outlives(&parent) {
				s.deployment.stopUnpaid(&parent, s.money.whyLacks(e, amount))
				return command.Result{Execution: parent.ID, Status: parent.Status, Count: n}
			}
			parent.Detail = "the organization's credits are exhausted"
			s.halt(&parent, compute.StopGraceful, compute.ReasonCredits)
			return command.Result{Execution: parent.ID, Status: s.statusOf(parent.ID), Count: n}
		}
		fill(parent.Service, asked, revision)
		s.money.hold(e, amount, "replica")
		s.execution.putExecution(e)
		s.statistics.learn(e.Request)
		n++
	}
	if n > 0 {
		if parent.Status == compute.StatusPending {
			parent.Status, parent.Reason, parent.PlacedAt = compute.StatusRunning, compute.ReasonNone, s.view.meta.Now
		}
		s.execution.putExecution(&parent)
	}
	return command.Result{Execution: parent.ID, Status: parent.Status, Count: n}
}

func (s *service) statusOf(id compute.ExecutionID) compute.Status {
	e, _ := s.view.executions.Get(id)
	return e.Status
}

// fill puts a replica of an update into its slot.
func fill(svc *compute.Service, r command.NewReplica, revision uint64) {
	for n := len(svc.Slots) + 1; n <= r.Number; n++ {
		svc.Slots = append(svc.Slots, compute.Slot{Number: n})
	}
	slot := &svc.Slots[r.Number-1]
	if !slot.Replica.IsZero() {
		slot.Restarts++
	}
	slot.Before, slot.Replica, slot.Live, slot.NextAt = slot.Replica, r.ID, true, 0
	slot.Revision = revision
	svc.Live++
}

// replicaOf returns a new replica of a service.
func replicaOf(
	parent *compute.Execution, id compute.ExecutionID, index uint64, now compute.Instant,
) *compute.Execution {
	return &compute.Execution{
		ID: id, Org: parent.Org, User: parent.User, Key: parent.Key, Parent: parent.ID,
		Kind: compute.KindReplica, Status: compute.StatusQueued, Reason: compute.ReasonScheduling,
		Profile: parent.Profile, Request: parent.Request, Price: parent.Price,
		Bundle: parent.Bundle, FileName: parent.FileName, Imports: parent.Imports, ImportFiles: parent.ImportFiles,
		JobType: parent.JobType, Timeout: compute.Unlimited,
		DisconnectGrace: parent.DisconnectGrace, Priority: parent.Priority,
		Network: parent.Network, Tags: parent.Tags, StopGrace: parent.StopGrace,
		SubmitIndex: index, CreatedAt: now, MaxRetries: maxRetries, MinVRAMMiB: parent.MinVRAMMiB,
		Name: parent.Name, Files: parent.Files,
		Volumes: parent.Volumes, ScratchMiB: parent.ScratchMiB, ScratchMemory: parent.ScratchMemory,
		Environment: parent.Environment, Container: parent.Container,
		Inference: parent.Inference,
		Serving:   parent.Serving, GPUTypes: parent.GPUTypes, MinCapability: parent.MinCapability,
	}
}

// endReplica records in a service that one of its replicas has ended, and when the
// next one may start in its place. The last one of a service that is stopped, or
// of which no replica starts again, ends it.
func (s *service) endReplica(child *compute.Execution) {
	known, ok := s.view.executions.Get(child.Parent)
	if !ok || known.Status.Terminal() {
		return
	}
	parent := copyService(known)
	svc := parent.Service
	slot := svc.Slot(child.ID)
	if slot == nil || !slot.Live {
		return
	}
	slot.Live = false
	svc.Live--
	parent.Billed += child.Billed
	parent.EndedAt = max(parent.EndedAt, child.EndedAt)
	if child.Ran && child.Duration >= svc.BackoffReset {
		slot.Crashes = 0
	}
	slot.Crashes++
	slot.NextAt = s.view.meta.Now.Add(svc.Backoff(slot.Crashes))
	slot.Done = !svc.Restart.Again(child.Status)
	trim(svc)
	unpaid := parent.Stop == compute.StopNone && child.Reason == compute.ReasonCredits
	switch {
	case parent.Stop != compute.StopNone && svc.Live == 0:
		s.endStopped(&parent)
	case unpaid && !s.deployment.outlives(&parent):
		parent.Detail = child.Detail
		s.halt(&parent, compute.StopGraceful, compute.ReasonCredits)
	case unpaid && child.Stop == compute.StopNone: // Nothing buys another attempt.
		s.deployment.stopUnpaid(&parent, child.Detail)
	case s.deployment.judgeEnd(&parent, child):
	case parent.Stop != compute.StopNone || !s.endDone(&parent):
		s.execution.putExecution(&parent)
	}
}

// endStopped ends a service that is stopped and has no replica.
func (s *service) endStopped(parent *compute.Execution) {
	how := stopEnding(parent.Stop)
	how.detail = parent.Detail
	if parent.Reason == compute.ReasonCredits {
		how.reason = parent.Reason
	}
	s.execution.end(parent, how)
}

// endDone ends a service of which no replica starts again, and reports whether it is
// one.
func (s *service) endDone(parent *compute.Execution) bool {
	svc := parent.Service
	if svc.Live > 0 || svc.Replicas == 0 || len(svc.Slots) < svc.Replicas {
		return false
	}
	how := ending{compute.StatusCompleted, compute.ReasonNone, ""}
	for _, slot := range svc.Slots {
		if !slot.Done {
			return false
		}
		if e, ok := s.view.executions.Get(slot.Replica); ok && e.Status != compute.StatusCompleted {
			how = ending{
				compute.StatusFailed, compute.ReasonReplicasEnded,
				fmt.Sprintf("replica %d %s (%s) and is not restarted",
					slot.Number, e.Status, joinDetail(e.Reason.String(), e.Detail)),
			}
		}
	}
	s.execution.end(parent, how)
	return true
}

// stopService stops a service on request.
func (s *service) stopService(known *compute.Execution, how compute.Stop) {
	parent := copyService(known)
	s.halt(&parent, how, compute.ReasonNone)
}

// halt stops a service, which the caller has not stored, at once while it has no replica, else by stopping its
// replicas, the last of which ends it.
func (s *service) halt(parent *compute.Execution, how compute.Stop, why compute.Reason) {
	parent.Stop = max(parent.Stop, how)
	if why != compute.ReasonNone {
		parent.Reason = why
	}
	if parent.Service.Live == 0 {
		s.endStopped(parent)
		return
	}
	s.execution.putExecution(parent)
	for _, slot := range slices.Clone(parent.Service.Slots) {
		if e, ok := s.view.executions.Get(slot.Replica); ok && slot.Live && !e.Status.Terminal() {
			s.execution.stop(e, how, compute.ReasonParentEnded)
		}
	}
}

// scaleService changes how many replicas are wanted. Surplus ones are stopped, those
// of the highest numbers; missing ones are the leader's to create.
func (s *service) scaleService(c command.ScaleService) command.Result {
	if refusal := s.access.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if _, ok := s.execution.visible(c.Actor, c.Service); !ok {
		return refuse(compute.CodeNotFound, "execution_not_found", "service not found")
	}
	parent, refusal := s.serviceOf(c.Service)
	switch {
	case refusal != nil:
		return command.Result{Refusal: refusal}
	case parent.Stop != compute.StopNone:
		return refuse(compute.CodeConflict, "already_ended", "the service is being stopped")
	case parent.Deployment != nil:
		return refuse(compute.CodeConflict, "is_deployment", "a deployment scales between its own limits")
	case c.Replicas < 0 || c.Replicas > compute.MaxReplicas:
		return command.Result{Refusal: invalidReplicas(0)}
	}
	if c.Replicas > parent.Service.Replicas {
		if refusal := s.admitReplicas(c.Actor, &parent); refusal != nil {
			return command.Result{Refusal: refusal}
		}
	}
	s.scaleTo(&parent, c.Replicas)
	now, _ := s.view.executions.Get(parent.ID)
	if now.Service.Live == 0 {
		left := copyService(now)
		s.endDone(&left)
	}
	return command.Result{Execution: parent.ID, Status: s.statusOf(parent.ID), Count: c.Replicas}
}

// admitReplicas refuses more replicas on hardware that the organization may not use. It refuses
// them to an actor with a ceiling, its API key's or its own, toward which they do not count: they
// are charged to the key and the member that created the service.
func (s *service) admitReplicas(a command.Actor, parent *compute.Execution) *compute.Error {
	if s.view.Format() < format.Rotation {
		return nil
	}
	if refusal := s.view.admitHardware(parent); refusal != nil {
		return refusal
	}
	if parent.Key != a.Key && s.access.admitUnlimited(a) != nil {
		return compute.Errorf(compute.CodeForbidden,
			"an API key with a ceiling starts, scales up and updates only services that it created: "+
				"use another key, or sign in").
			Named("key_limited")
	}
	own, ok := s.view.budgets.Get(spender{org: a.Org, user: a.User})
	if ok && !a.User.IsZero() && own.Enforce && parent.User != a.User {
		return compute.Errorf(compute.CodeForbidden, "a member with a ceiling starts, scales up and updates only "+
			"services that they created: create one, or ask its creator").Named("member_limited")
	}
	return nil
}

// scaleTo stores a service with another number of wanted replicas, and stops surplus
// ones.
func (s *service) scaleTo(parent *compute.Execution, replicas int) {
	svc := parent.Service
	svc.Replicas, svc.Surge = replicas, false
	trim(svc)
	s.execution.putExecution(parent)
	for _, slot := range slices.Clone(svc.Slots) {
		surplus := slot.Number > replicas && slot.Live
		if e, ok := s.view.executions.Get(slot.Replica); ok && surplus && e.Stop == compute.StopNone {
			s.execution.stop(e, compute.StopGraceful, compute.ReasonNone)
		}
	}
}

// trim removes the last slots while they have no place and no live replica.
func trim(svc *compute.Service) {
	for n := len(svc.Slots); n > svc.Places() && !svc.Slots[n-1].Live; n-- {
		svc.Slots = svc.Slots[:n-1]
	}
}

// setReady records whether a replica is ready.
func (s *service) setReady(c command.SetReady) command.Result {
	_, e, refusal := s.execution.liveAttempt(c.Node, c.Execution, c.Epoch)
	switch {
	case refusal != nil:
		return command.Result{Refusal: refusal}
	case e.Kind != compute.KindReplica:
		return refuse(compute.CodeInvalid, "kind", "only replicas of services are ready")
	case e.Ready == c.Ready:
		return command.Result{Repeat: true, Execution: e.ID, Status: e.Status}
	case e.Status != compute.StatusRunning:
		return refuse(compute.CodeUnavailable, "not_started", "the start of the replica is not recorded yet")
	}
	e.Ready, e.ReadyAt = c.Ready, s.view.meta.Now
	s.execution.putExecution(&e)
	if c.Ready {
		s.takePlace(&e)
	}
	return command.Result{Execution: e.ID, Status: e.Status}
}

// unready records that e is not ready because its attempt has ended.
func unready(e *compute.Execution, now compute.Instant) {
	if e.Ready {
		e.Ready, e.ReadyAt = false, now
	}
	e.CreditsEnd = 0
}

// checkService checks that a service and its replicas agree.
func (v checker) checkService(parent *compute.Execution) error {
	svc := parent.Service
	if svc == nil || parent.Serving == nil || svc.Replicas < 0 || len(svc.Slots) > compute.MaxReplicas+1 {
		return errors.New("a service without what it serves, or with too many slots")
	}
	live := 0
	for i, slot := range svc.Slots {
		if slot.Number != i+1 {
			return fmt.Errorf("slot %d has the number %d", i+1, slot.Number)
		}
		if err := v.checkSlot(slot); err != nil {
			return fmt.Errorf("slot %d: %w", slot.Number, err)
		}
		if slot.Live {
			live++
		}
	}
	if parent.Deployment != nil && !parent.Status.Terminal() {
		if err := checkDeployment(parent); err != nil {
			return err
		}
	}
	if live != svc.Live || live > 0 && parent.Status.Terminal() || live > 0 && parent.Status == compute.StatusPending {
		return fmt.Errorf("%d live replicas, counted %d", live, svc.Live)
	}
	return nil
}

// checkSlot checks that a slot and its newest replica agree.
func (v checker) checkSlot(slot compute.Slot) error {
	e, known := v.view.executions.Get(slot.Replica)
	switch {
	case slot.Live && (slot.Done || !known || e.Status.Terminal()):
		return errors.New("live, and its replica is not")
	case !slot.Live && known && !e.Status.Terminal():
		return errors.New("not live, but its replica is")
	}
	return nil
}

// checkReplica checks that a replica that has not ended is in a slot of its service,
// and that only code that runs is ready.
func (v checker) checkReplica(e *compute.Execution) error {
	if e.Ready && e.Status != compute.StatusRunning {
		return fmt.Errorf("ready, but %s", e.Status)
	}
	if e.Status.Terminal() {
		return nil
	}
	parent, ok := v.view.executions.Get(e.Parent)
	if !ok || parent.Service == nil || parent.Service.Slot(e.ID) == nil {
		return fmt.Errorf("replica %s is in no slot of its service", e.ID)
	}
	return nil
}
