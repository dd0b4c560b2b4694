package execution

import (
	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// Stop proposes the end of the execution that the path names, if it is of one of kinds.
func Stop(c *handler.Core, r *edge.Request, how compute.Stop, kinds ...compute.Kind) (any, error) {
	if r.Repeat {
		return stopped(r.First), nil
	}
	e, err := c.Find(r, kinds...)
	if err != nil {
		return nil, err
	}
	if r.View.FromArchive(e.ID) {
		return nil, errEnded(e)
	}
	result, err := c.Propose(r, command.StopExecution{
		Op: c.Op(r), Actor: r.Caller.Actor, Execution: e.ID, Stop: how,
	})
	if err != nil {
		return nil, orArchived(c, r, err, errEnded)
	}
	return stopped(result), nil
}

// stopped is the answer to a stop.
func stopped(result command.Result) wire.Stopped {
	message := "The execution is asked to end."
	if result.Status.Terminal() {
		message = "The execution has ended."
	}
	return wire.Stopped{ExecutionID: result.Execution, Status: result.Status, Message: message}
}

// orArchived returns err, the refusal of a change to an execution, unless the
// execution was archived meanwhile. Then it returns refusal's error.
func orArchived(
	c *handler.Core, r *edge.Request, err error, refusal func(*compute.Execution) error,
) error {
	if compute.CodeOf(err) != compute.CodeNotFound {
		return err
	}
	view, readErr := c.Config.Reader.Read(r.Ctx)
	if readErr != nil {
		return readErr
	}
	r.View = view
	e, findErr := c.Find(r)
	switch {
	case findErr == nil && r.View.FromArchive(e.ID):
		return refusal(e)
	case findErr != nil && compute.CodeOf(findErr) != compute.CodeNotFound:
		return findErr
	}
	return err
}

// errArchived refuses to change what is in an archive.
func errArchived(*compute.Execution) error {
	return compute.Errorf(compute.CodeConflict,
		"The execution is in an archive, which never changes: it cannot be deleted any more.").Named("archived")
}

// errEnded refuses to stop what has ended.
func errEnded(e *compute.Execution) error {
	return compute.Errorf(compute.CodeConflict, "the execution has already ended as %s", e.Status).Named("already_ended")
}
