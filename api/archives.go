package api

import (
	"context"

	"berth/compute"
	"berth/fsm"
)

// openArchive returns what opens archives for a request.
func (s *Server) openArchive(ctx context.Context) fsm.OpenArchive {
	return func(a *fsm.Archive) (*fsm.ArchiveFile, error) { return s.cfg.Archives.Open(ctx, a) }
}

// dig has the view of the request know an execution of the caller's that is in
// an archive.
func (s *Server) dig(r *request, id compute.ExecutionID) (err error) {
	view, err := r.view.Dig(r.caller.actor.Org, id, s.openArchive(r.ctx))
	if err == nil {
		r.view = view
	}
	return err
}

// errArchived refuses to change what is in an archive.
func errArchived() error {
	return compute.Errorf(compute.CodeConflict,
		"The execution is in an archive, which never changes: it cannot be deleted any more.").Named("archived")
}
