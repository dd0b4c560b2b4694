package fsm

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// prepareDeployment completes the parent of a deployment, and refuses one that no engine
// could serve. Other services pass.
func (s *deployment) prepareDeployment(e *compute.Execution) *compute.Error {
	d, model := e.Deployment, e.Inference
	if d == nil {
		return nil
	}
	if refusal := checkInference(model); refusal != nil {
		return refusal
	}
	if refusal := checkScaling(d); refusal != nil {
		return refusal
	}
	asked := d.AskedVRAMMiB
	switch {
	case s.view.Format() < format.Asked:
		asked = 0
	case asked < 0 || asked > e.MinVRAMMiB:
		return compute.Errorf(compute.CodeInvalid, "more GPU memory was asked for than each GPU must have").Named("min_vram")
	}
	e.Deployment = &compute.Deployment{
		Min: d.Min, Max: d.Max, TargetMilliRPS: d.TargetMilliRPS, TargetP95: d.TargetP95,
		Window: d.Window, Starts: d.Starts, ChangedAt: s.view.meta.Now, AskedVRAMMiB: asked,
	}
	e.Service.Restart, e.Service.Replicas = compute.RestartAlways, e.Deployment.First()
	return nil
}

// checkScaling refuses limits and targets that are out of bounds.
func checkScaling(d *compute.Deployment) *compute.Error {
	bad := func(name, format string, args ...any) *compute.Error {
		return compute.Errorf(compute.CodeInvalid, format, args...).Named(name)
	}
	switch {
	case d.Max < 1 || d.Max > compute.MaxReplicas || d.Min < 0 || d.Min > d.Max:
		return bad("replicas", "min_replicas is at most max_replicas, which is 1 to %d", compute.MaxReplicas)
	case d.TargetMilliRPS < 1 || d.TargetMilliRPS > compute.MaxTargetRPS:
		return bad("target_rps", "target_rps is above 0 and at most %d", compute.MaxTargetRPS/1000)
	case d.TargetP95 <= 0 || d.TargetP95 > compute.MaxTargetDelay:
		return bad("target_latency_p95_ms", "target_latency_p95_ms is above 0 and at most %d",
			compute.MaxTargetDelay.Milliseconds())
	case d.Window < 0 || d.Window > compute.MaxWindow:
		return bad("stabilisation_window", "stabilisation_window is 0 to %d seconds", int(compute.MaxWindow.Seconds()))
	case d.Starts < 1 || d.Starts > compute.MaxStarts:
		return bad("starts", "a deployment fails after 1 to %d starts", compute.MaxStarts)
	}
	return nil
}

// checkInference refuses a model or arguments that are out of bounds. Which arguments
// an engine takes is the API's to say, and the node's again.
func checkInference(m *compute.Inference) *compute.Error {
	size := len(m.Engine)
	for _, arg := range m.Args {
		if len(arg) > compute.MaxEngineArg || strings.ContainsFunc(arg, unicode.IsControl) {
			return compute.Errorf(compute.CodeInvalid, "an argument of an engine has at most %d printable bytes",
				compute.MaxEngineArg).Named("vllm_args")
		}
	}
	switch {
	case size < 1 || size > compute.MaxEngineName:
		return compute.Errorf(compute.CodeInvalid, "no such engine").Named("engine")
	case len(m.Model) < 1 || len(m.Model) > compute.MaxModelName || strings.ContainsFunc(m.Model, unicode.IsControl):
		return compute.Errorf(compute.CodeInvalid, "hf_model_id has 1 to %d bytes", compute.MaxModelName).
			Named("hf_model_id")
	case len(m.Args) > compute.MaxEngineArgs:
		return compute.Errorf(compute.CodeInvalid, "an engine takes at most %d further arguments",
			compute.MaxEngineArgs).Named("vllm_args")
	case len(m.Token) > compute.MaxModelToken:
		return compute.Errorf(compute.CodeInvalid, "hf_token is too long").Named("hf_token")
	}
	return nil
}

// Deployments yields the parents of deployments that have not ended, for which yield
// returns true.
func (v *executionTables) Deployments(yield func(*compute.Execution) bool) {
	for e := range v.Services() {
		if e.Deployment != nil && !yield(e) {
			return
		}
	}
}

// deploymentOf returns a copy of a live deployment that may be changed.
func (s *deployment) deploymentOf(id compute.ExecutionID) (compute.Execution, *compute.Error) {
	known, ok := s.view.executions.Get(id)
	switch {
	case !ok || known.Deployment == nil:
		return compute.Execution{}, errNoDeployment()
	case known.Status.Terminal() || known.Stop != compute.StopNone:
		return compute.Execution{}, compute.Errorf(compute.CodeConflict, "the deployment is being deleted").
			Named("already_ended")
	}
	return copyService(known), nil
}

// deploymentFor returns a copy of a live deployment that an actor may change.
func (s *deployment) deploymentFor(actor command.Actor, id compute.ExecutionID) (compute.Execution, *compute.Error) {
	if refusal := s.access.admit(actor); refusal != nil {
		return compute.Execution{}, refusal
	}
	if _, ok := s.execution.visible(actor, id); !ok {
		return compute.Execution{}, errNoDeployment()
	}
	return s.deploymentOf(id)
}

func errNoDeployment() *compute.Error {
	return compute.Errorf(compute.CodeNotFound, "deployment not found").Named("deployment_not_found")
}

// changeDeployment stops a deployment on request, or starts it.
func (s *deployment) changeDeployment(c command.ChangeDeployment) command.Result {
	parent, refusal := s.deploymentFor(c.Actor, c.Deployment)
	if refusal != nil {
		return command.Result{Refusal: refusal}
	}
	state, replicas := compute.DeploymentStopped, 0
	if c.Start {
		state, replicas = compute.DeploymentActive, parent.Deployment.First()
	}
	if parent.Deployment.State == state {
		return command.Result{Repeat: true, Execution: parent.ID, Status: parent.Status, Count: parent.Service.Replicas}
	}
	if c.Start {
		if refusal := s.service.admitReplicas(c.Actor, &parent); refusal != nil {
			return command.Result{Refusal: refusal}
		}
	}
	s.enter(&parent, state, replicas)
	return command.Result{Execution: parent.ID, Status: parent.Status, Count: replicas}
}

// scaleDeployment changes how many replicas an active deployment has, or pauses it.
func (s *deployment) scaleDeployment(c command.ScaleDeployment) command.Result {
	parent, refusal := s.deploymentOf(c.Deployment)
	if refusal != nil {
		return command.Result{Refusal: refusal}
	}
	d := parent.Deployment
	replicas := min(max(c.Replicas, d.First()), d.Max)
	state := compute.DeploymentActive
	if c.Replicas <= 0 {
		state, replicas = compute.DeploymentPaused, 0
	}
	if d.State != compute.DeploymentActive || d.ChangedAt != c.Since || replicas == parent.Service.Replicas {
		return command.Result{Repeat: true, Execution: parent.ID, Status: parent.Status, Count: parent.Service.Replicas}
	}
	s.enter(&parent, state, replicas)
	return command.Result{Execution: parent.ID, Status: parent.Status, Count: replicas}
}

// resumeDeployment starts a paused deployment.
func (s *deployment) resumeDeployment(c command.ResumeDeployment) command.Result {
	parent, refusal := s.deploymentOf(c.Deployment)
	if refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if parent.Deployment.State != compute.DeploymentPaused {
		return command.Result{Repeat: true, Execution: parent.ID, Status: parent.Status, Count: parent.Service.Replicas}
	}
	if refusal := s.view.admitResume(&parent); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	s.enter(&parent, compute.DeploymentActive, parent.Deployment.First())
	return command.Result{Execution: parent.ID, Status: parent.Status, Count: parent.Service.Replicas}
}

// admitResume refuses to resume a deployment whose replicas could get no place whatever else
// ends: its organization may not use their hardware, or a quota is smaller than a replica.
func (v *View) admitResume(parent *compute.Execution) *compute.Error {
	if v.Format() < format.Rotation {
		return nil
	}
	if refusal := v.admitHardware(parent); refusal != nil {
		return refusal
	}
	_, why := parent.Narrowed(v.overAnyLoad)
	if !parent.AnyOf() {
		why = v.overAnyLoad(parent)
	}
	if why == compute.ReasonNone {
		return nil
	}
	return compute.Errorf(compute.CodeForbidden, "a quota allows the organization, its key, its tag or the hardware "+
		"profile fewer GPUs than a replica of the deployment needs: ask the operator").Named(why.String())
}

// CheckReplicas returns the error for a request to a deployment of which no replica has a place
// and none can get one; nil while it makes sense to wait.
func (v *View) CheckReplicas(parent *compute.Execution) error {
	for _, slot := range parent.Service.Slots {
		if e, ok := v.executions.Get(slot.Replica); ok && holds(e) && e.Stop == compute.StopNone {
			return nil
		}
	}
	if refusal := v.admitResume(parent); refusal != nil {
		return refusal
	}
	return nil
}

// enter stores a deployment with another state and another number of replicas. One
// that becomes active forgets its crashes.
func (s *deployment) enter(parent *compute.Execution, state compute.DeploymentState, replicas int) {
	d := parent.Deployment
	if state == compute.DeploymentActive && d.State != state {
		parent.Detail = ""
		forgetCrashes(parent.Service)
		if d.Next != nil && parent.Service.Live == 0 {
			s.view.adoptNext(parent)
		}
	}
	d.State, d.ChangedAt = state, s.view.meta.Now
	s.service.scaleTo(parent, replicas)
}

// outlives reports whether a service stays when nothing pays for its replicas, as
// deployments do since format.Asked. Others end.
func (s *deployment) outlives(parent *compute.Execution) bool {
	return parent.Deployment != nil && s.view.Format() >= format.Asked
}

// stopUnpaid stores a deployment, stopped for a reason if it is active: it can be started
// again.
func (s *deployment) stopUnpaid(parent *compute.Execution, why string) {
	if parent.Deployment.State != compute.DeploymentActive {
		s.execution.putExecution(parent)
		return
	}
	parent.Detail = why
	s.enter(parent, compute.DeploymentStopped, 0)
}

// stopUnpaidOf stops the deployment of a replica that nothing pays for any longer, unless
// it has as many as are wanted without it.
func (s *deployment) stopUnpaidOf(child *compute.Execution) {
	known, ok := s.view.executions.Get(child.Parent)
	if !ok || known.Service == nil || known.Stop != compute.StopNone || !s.outlives(known) {
		return
	}
	parent := copyService(known)
	if slot := parent.Service.Slot(child.ID); slot != nil && slot.Number <= parent.Service.Replicas {
		s.stopUnpaid(&parent, child.Detail)
	}
}

// judgeEnd records that a replica of a deployment has ended by itself. It stores the
// parent and returns true if that was one time too many: the deployment has failed.
func (s *deployment) judgeEnd(parent, child *compute.Execution) bool {
	d, slot := parent.Deployment, parent.Service.Slot(child.ID)
	if d == nil || parent.Stop != compute.StopNone || child.Stop != compute.StopNone {
		return false
	}
	d.Last = child.ID
	if slot == nil || d.State != compute.DeploymentActive || slot.Crashes < d.Starts {
		return false
	}
	if d.Next != nil && slot.Revision == d.Updates {
		s.giveUpUpdate(parent, slot, child)
		return true
	}
	if parent.Service.Surge && slot.Number > parent.Service.Replicas {
		return false // Those that are wanted go on.
	}
	parent.Detail = fmt.Sprintf("its engine ended %d times in a row, the last time as %s (%s)",
		slot.Crashes, child.Status, joinDetail(child.Reason.String(), child.Detail))
	s.enter(parent, compute.DeploymentFailed, 0)
	return true
}

// checkDeployment checks that a deployment agrees with itself.
func checkDeployment(e *compute.Execution) error {
	d, replicas := e.Deployment, e.Service.Replicas
	switch {
	case e.Inference == nil:
		return errors.New("a deployment without a model")
	case d.State != compute.DeploymentActive && replicas != 0:
		return fmt.Errorf("%s, and wants %d replicas", d.State, replicas)
	case d.State == compute.DeploymentActive && (replicas < d.First() || replicas > d.Max):
		return fmt.Errorf("wants %d replicas of %d to %d", replicas, d.Min, d.Max)
	}
	return nil
}
