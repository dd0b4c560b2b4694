package handler

import (
	"slices"

	"berth/api/edge"
	"berth/compute"
	"berth/fsm"
)

// Find returns the execution that the path names, if it is the caller's and of
// one of kinds (any when there are none).
func (c *Core) Find(r *edge.Request, kinds ...compute.Kind) (*compute.Execution, error) {
	return c.FindWith(r, (*fsm.View).Execution, kinds...)
}

// FindWith is Find with the way to read the execution from a view.
func (c *Core) FindWith(r *edge.Request,
	read func(*fsm.View, compute.OrgID, compute.ExecutionID) (*compute.Execution, bool), kinds ...compute.Kind,
) (*compute.Execution, error) {
	id, err := compute.ParseExecutionID(r.Params["id"])
	if err != nil {
		return nil, edge.NotFound()
	}
	if err := c.LoadArchived(r, id); err != nil {
		return nil, err
	}
	e, ok := read(r.View, r.Caller.Actor.Org, id)
	if !ok || (len(kinds) > 0 && !slices.Contains(kinds, e.Kind)) {
		return nil, edge.NotFound()
	}
	return e, nil
}

// LoadArchived adds an archived execution of the caller's organization to the request's
// view.
func (c *Core) LoadArchived(r *edge.Request, id compute.ExecutionID) (err error) {
	view, err := r.View.LoadArchived(r.Caller.Actor.Org, id, c.OpenArchive(r.Ctx))
	if err == nil {
		r.View = view
	}
	return err
}
