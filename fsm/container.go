package fsm

import (
	"strings"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// AllowsContainers returns the reason for which executions may not yet be containers.
func (v *View) AllowsContainers() error { return v.allowsFormat(format.Containers) }

// inContainers reports whether executions of a kind always execute in containers.
func inContainers(k compute.Kind) bool { return k == compute.KindDocker || k == compute.KindCompose }

// checkContainer refuses a container that no state could accept.
func (s *execution) checkContainer(e *compute.Execution) *compute.Error {
	c := e.Container
	switch {
	case c == nil && !inContainers(e.Kind):
		return nil
	case c == nil || e.Kind != compute.KindService && !inContainers(e.Kind):
		return compute.Errorf(compute.CodeInvalid, "only Docker, Compose and services execute in containers").
			Named("container")
	case len(c.Images) == 0 || len(c.Images) > compute.MaxImages || e.Kind != compute.KindCompose && len(c.Images) != 1:
		return compute.Errorf(compute.CodeInvalid, "an execution has at most %d images", compute.MaxImages).Named("images")
	case len(c.Credentials) > compute.MaxCredentials || c.Grace < 0 || c.Grace > compute.MaxContainerEnd:
		return compute.Errorf(compute.CodeInvalid, "the credentials or the grace of the container are too large").
			Named("container")
	}
	for _, image := range c.Images {
		if image == "" || len(image) > compute.MaxImageName || strings.ContainsAny(image, " \n\x00") {
			return compute.Errorf(compute.CodeInvalid, "%.80q is not the name of an image", image).Named("images")
		}
	}
	return nil
}

// sealedWith returns why the credentials or the token of a submit cannot be stored: another
// key than the organization's has sealed them.
func (s *execution) sealedWith(c *command.Submit) *compute.Error {
	e := &c.Execution
	if e.Container != nil && len(e.Container.Credentials) > 0 {
		if refusal := s.identity.changedKey(c.Actor.Org, c.Key, e.Container.Key); refusal != nil {
			return refusal
		}
	}
	if e.Inference != nil && len(e.Inference.Token) > 0 && s.view.Format() >= format.Rotation {
		return s.identity.changedKey(c.Actor.Org, c.Key, e.Inference.Key)
	}
	return nil
}

// containerOf returns the container that a submit asks for, nil for none, as the state
// records it.
func (s *execution) containerOf(said *compute.Execution) *compute.Container {
	if s.view.Format() < format.Containers || said.Container == nil {
		return nil
	}
	c := *said.Container
	c.Digest = ""
	return &c
}

// needEngine adds to the request of e the engine that its node has to have.
func (s *execution) needEngine(e *compute.Execution) {
	if e.Container == nil {
		return
	}
	trusted := false
	if o, ok := s.view.orgs.Get(e.Org); ok {
		trusted = o.Trusted
	}
	offer := compute.DockerOffer(trusted)
	if e.Kind == compute.KindCompose {
		offer = compute.ComposeOffer(trusted)
	}
	e.Request.Needs = append(e.Request.Needs, offer)
}

// executed records the image that was executed.
func executed(e *compute.Execution, digest string) {
	if e.Container == nil || digest == "" {
		return
	}
	c := *e.Container
	c.Digest = clip(digest)
	e.Container = &c
}

// forgetCredentials removes the credentials for pulling the images of e.
func forgetCredentials(e *compute.Execution) {
	if e.Container == nil || len(e.Container.Credentials) == 0 {
		return
	}
	c := *e.Container
	c.Credentials, c.Key = nil, 0
	e.Container = &c
}

// trustOrg says whether executions of an organization may be placed on nodes whose
// isolation is below the minimum.
func (s *identity) trustOrg(c command.TrustOrg) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.view.orgs.Get(c.Org)
	if !ok || !known.DeletedAt.IsZero() {
		return refuse(compute.CodeNotFound, "not_found", "there is no such organization")
	}
	o := *known
	o.Trusted = c.Trusted
	s.view.putOrg(&o)
	return command.Result{ID: o.ID.UUID}
}

// completeExecution records, once, a client's report on the end of a Compose execution
// that it has watched. A live execution is asked to end. The report changes neither the
// status nor the charge.
func (s *execution) completeExecution(c command.CompleteExecution) command.Result {
	if refusal := s.access.admit(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.visible(c.Actor, c.Execution)
	if !ok || known.Kind != compute.KindCompose || known.Container == nil || known.Deleted {
		return refuse(compute.CodeNotFound, "execution_not_found", "execution not found")
	}
	if len(c.Reported.Output) > compute.MaxReportedOutput || int(c.Reported.Status) >= compute.Statuses {
		return refuse(compute.CodeInvalid, "output", "the output has at most %d bytes", compute.MaxReportedOutput)
	}
	if known.Container.Reported == nil {
		e, container := *known, *known.Container
		reported := c.Reported
		reported.At = s.view.meta.Now
		container.Reported = &reported
		e.Container = &container
		s.putExecution(&e)
		known = &e
	}
	if !known.Status.Terminal() {
		s.stop(known, compute.StopGraceful, compute.ReasonNone)
	}
	now, _ := s.view.executions.Get(c.Execution)
	return command.Result{Execution: now.ID, Status: now.Status}
}
