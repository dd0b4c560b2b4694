package api

import (
	"berth/api/edge"
	"berth/compute"
)

// loadArchived adds an archived execution of the caller's organization to the request's
// view.
func (c *core) loadArchived(r *edge.Request, id compute.ExecutionID) (err error) {
	view, err := r.View.LoadArchived(r.Caller.Actor.Org, id, c.OpenArchive(r.Ctx))
	if err == nil {
		r.View = view
	}
	return err
}

// orArchived returns err, the refusal of a change to an execution, unless the
// execution was archived meanwhile. Then it returns refusal's error.
func (g *executions) orArchived(r *edge.Request, err error, refusal func(*compute.Execution) error) error {
	if compute.CodeOf(err) != compute.CodeNotFound {
		return err
	}
	view, readErr := g.cfg.Reader.Read(r.Ctx)
	if readErr != nil {
		return readErr
	}
	r.View = view
	e, findErr := g.find(r)
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
