package fsm

import (
	"bytes"
	"fmt"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// Outdated reports whether some replica of a service is to be replaced: it is not of
// the newest update, or its node is drained with a deadline.
func (v *View) Outdated(parent *compute.Execution) bool { return v.outdated(parent) != nil }

// outdated returns the slot whose replica is replaced next, nil for none. One that
// has no replica, or one that is not ready, comes first.
func (v *View) outdated(parent *compute.Execution) (found *compute.Slot) {
	svc, serves := parent.Service, true
	for i := range svc.Slots[:min(len(svc.Slots), svc.Replicas)] {
		slot := &svc.Slots[i]
		e, ok := v.executions.Get(slot.Replica)
		if !ok || !v.replaces(parent, slot, e) {
			continue
		}
		ready := slot.Live && e.Ready
		if found == nil || serves && !ready {
			found, serves = slot, ready
		}
	}
	return found
}

// replaces reports whether the replica e in a slot is to be replaced.
func (v *View) replaces(parent *compute.Execution, slot *compute.Slot, e *compute.Execution) bool {
	switch {
	case parent.Deployment != nil && parent.Deployment.Next != nil:
		return true
	case !slot.Live || e.Stop != compute.StopNone:
		return false // The next one in the slot is up to date.
	case slot.Revision != parent.Service.Revision:
		return true
	}
	attempts := v.Attempts(e.ID)
	if !e.Ready || len(attempts) == 0 {
		return false // It leaves the node, and is placed on another one, by itself.
	}
	n, ok := v.nodes.Get(attempts[len(attempts)-1].Node)
	return ok && n.Drained && !n.DrainBy.IsZero()
}

// MaySurge reports whether a service gets one replica more, to replace an outdated one:
// that is done one after the other.
func (v *View) MaySurge(parent *compute.Execution) bool {
	svc := parent.Service
	return parent.Stop == compute.StopNone && !parent.Status.Terminal() && !svc.Surge && svc.Replicas > 0 &&
		len(svc.Slots) == svc.Replicas && v.Outdated(parent)
}

// surgeService gives a service one replica more than are wanted.
func (s *service) surgeService(c command.SurgeService) command.Result {
	parent, refusal := s.serviceOf(c.Service)
	if refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if !s.view.MaySurge(&parent) {
		return command.Result{Repeat: true, Execution: parent.ID, Status: parent.Status}
	}
	parent.Service.Surge = true
	s.execution.putExecution(&parent)
	return command.Result{Execution: parent.ID, Status: parent.Status}
}

// takePlace has a replica that became ready take the place of an outdated one, which is
// stopped: the two change their slots, and the slot beyond those that are wanted goes.
// A replica of the next update makes it the one that the service is of.
func (s *service) takePlace(e *compute.Execution) {
	known, ok := s.view.executions.Get(e.Parent)
	if !ok || known.Service == nil || known.Status.Terminal() || known.Stop != compute.StopNone {
		return
	}
	parent := copyService(known)
	svc, d := parent.Service, parent.Deployment
	slot := svc.Slot(e.ID)
	if slot == nil {
		return
	}
	updated := d != nil && d.Next != nil && slot.Revision == d.Updates
	surplus := svc.Surge && slot.Number > svc.Replicas
	if surplus {
		if old := s.view.outdated(&parent); old != nil {
			swap(slot, old)
		}
	}
	if updated {
		s.view.adoptNext(&parent)
	}
	switch {
	case surplus:
		s.scaleTo(&parent, svc.Replicas)
	case updated:
		s.execution.putExecution(&parent)
	}
}

// maxShownModel bounds the name of a model where lists show the name of a file, in bytes.
const maxShownModel = 200

// swap exchanges the replicas of two slots.
func swap(ready, old *compute.Slot) {
	*ready, *old = *old, *ready
	ready.Number, old.Number = old.Number, ready.Number
	old.Before, old.Restarts = ready.Replica, ready.Restarts+1
}

// updateDeployment changes the program of a deployment, and how it scales.
func (s *deployment) updateDeployment(c command.UpdateDeployment) command.Result {
	parent, refusal := s.deploymentFor(c.Actor, c.Deployment)
	if refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if refusal := s.service.admitReplicas(c.Actor, &parent); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if refusal := s.checkUpdate(&parent, c); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if c.Key != nil {
		s.identity.firstDataKey(c.Actor.Org, *c.Key)
	}
	replicas := parent.Service.Replicas
	if d, asked := parent.Deployment, c.Scaling; asked != nil {
		d.Min, d.Max, d.Window = asked.Min, asked.Max, asked.Window
		d.TargetMilliRPS, d.TargetP95, d.ChangedAt = asked.TargetMilliRPS, asked.TargetP95, s.view.meta.Now
		if d.State == compute.DeploymentActive {
			replicas = min(max(replicas, d.First()), d.Max)
		}
	}
	if c.Model != nil {
		s.setNext(&parent, *c.Model, c.MinVRAMMiB)
	}
	s.service.scaleTo(&parent, replicas) // An update that is under way begins again.
	return command.Result{Execution: parent.ID, Status: parent.Status, Count: replicas}
}

// checkUpdate refuses an update that is out of bounds, or that changes the engine.
func (s *deployment) checkUpdate(parent *compute.Execution, c command.UpdateDeployment) *compute.Error {
	if c.Scaling != nil {
		asked := *c.Scaling
		asked.Starts = parent.Deployment.Starts
		if refusal := checkScaling(&asked); refusal != nil {
			return refusal
		}
	}
	if c.Key != nil {
		if refusal := s.identity.view.admitSealed(c.Key.Sealed); refusal != nil {
			return refusal
		}
	}
	if c.Model == nil {
		return nil
	}
	if c.Model.Engine != parent.Inference.Engine {
		return compute.Errorf(compute.CodeInvalid, "a deployment keeps its engine").Named("engine")
	}
	if c.MinVRAMMiB < 0 || c.MinVRAMMiB > maxMinVRAM {
		return compute.Errorf(compute.CodeInvalid, "the GPU memory is out of bounds").Named("min_vram")
	}
	if refusal := checkInference(c.Model); refusal != nil {
		return refusal
	}
	// A token that stays is sealed again with that of the parent.
	stays := sameToken(c.Model, parent.Inference) || sameToken(c.Model, parent.Deployment.Next)
	if len(c.Model.Token) > 0 && !stays && s.view.Format() >= format.Rotation {
		if refusal := s.identity.changedKey(c.Actor.Org, c.Key, c.Model.Key); refusal != nil {
			return refusal
		}
	}
	updated := *parent
	return s.view.setInference(&updated, c.Model, c.MinVRAMMiB)
}

// sameToken reports whether two models have the same token, sealed with the same key.
func sameToken(a, b *compute.Inference) bool {
	return b != nil && a.Key == b.Key && bytes.Equal(a.Token, b.Token)
}

// setInference makes a service or a replica execute a model on GPUs that each have at
// least minVRAMMiB of memory. It returns why no node could host it.
func (v *nodeTables) setInference(e *compute.Execution, model *compute.Inference, minVRAMMiB int64) *compute.Error {
	e.Inference, e.MinVRAMMiB, e.Request.MinVRAMMiB = model, minVRAMMiB, 0
	p, _ := compute.ParseProfile(e.Profile) // It was checked at the submit.
	return v.needVRAM(p, &e.Request, minVRAMMiB)
}

// setNext makes a deployment execute a model: at once if it has no replica, otherwise
// as soon as one replica of it is ready.
func (s *deployment) setNext(parent *compute.Execution, model compute.Inference, minVRAMMiB int64) {
	d := parent.Deployment
	d.Updates++
	d.Next, d.NextVRAMMiB, parent.Detail = &model, minVRAMMiB, ""
	if parent.Service.Live == 0 {
		s.view.adoptNext(parent)
		forgetCrashes(parent.Service)
	}
}

// adoptNext makes a deployment execute its next update.
func (v *nodeTables) adoptNext(parent *compute.Execution) {
	d := parent.Deployment
	_ = v.setInference(parent, d.Next, d.NextVRAMMiB) // A model that fits no node waits, as after a node is lost.
	parent.Service.Revision, d.Next, d.NextVRAMMiB = d.Updates, nil, 0
	parent.FileName, parent.Detail = compute.Clip(parent.Inference.Model, maxShownModel), ""
}

// forgetCrashes ends the back-offs of a service.
func forgetCrashes(svc *compute.Service) {
	for i := range svc.Slots {
		svc.Slots[i].Crashes, svc.Slots[i].NextAt = 0, 0
	}
}

// giveUpUpdate drops the next update of a deployment after its replica with that update
// has ended too often.
func (s *deployment) giveUpUpdate(parent *compute.Execution, slot *compute.Slot, child *compute.Execution) {
	parent.Detail = fmt.Sprintf(
		"the update was given up, and the earlier replicas go on: the new engine ended %d times in a row, "+
			"the last time as %s (%s)", slot.Crashes, child.Status, joinDetail(child.Reason.String(), child.Detail))
	parent.Deployment.Next, parent.Deployment.NextVRAMMiB = nil, 0
	s.service.scaleTo(parent, parent.Service.Replicas)
}
