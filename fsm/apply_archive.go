package fsm

import (
	"slices"

	"berth/compute"
	"berth/fsm/archive"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/fsm/store"
)

// archiveExecutions drops executions that are in a blob, and stores which blob has
// them. It refuses a blob whose sum of hashes differs from the sum of this replica's
// records. A repeat changes nothing.
func (s *retention) archiveExecutions(c command.ArchiveExecutions) command.Result {
	if _, ok := s.view.archiveBlobs.Get(c.Blob); ok {
		return command.Result{Repeat: true}
	}
	ids, refusal := s.archivable(c)
	if refusal != nil {
		return command.Result{Refusal: refusal}
	}
	a := &archive.Record{
		Number: s.view.nextArchive(), Blob: c.Blob, Size: c.Size, Month: c.Month, Executions: len(ids), Sum: c.Sum,
		Tails: archive.TailsOf(ids),
	}
	var found store.Sum
	for _, id := range ids {
		execution := true
		archiver{s.view}.recordsOf(id, func(encoded []byte) {
			found.Add(archive.HashOf(encoded, execution))
			execution = false
		})
		e, _ := s.view.executions.Get(id)
		a.Add(e)
	}
	if found != store.Sum(c.Sum) {
		return refuse(compute.CodeConflict, "archive_differs", "the executions are no longer those of the archive")
	}
	slices.SortFunc(a.Orgs, func(x, y archive.Org) int { return byOrg(x.Org, y.Org) })
	slices.SortFunc(a.Bundles, byHash)
	a.Bundles = slices.Compact(a.Bundles)
	for _, id := range ids {
		e, _ := s.view.executions.Get(id)
		s.forget(e)
	}
	s.putArchive(a)
	return command.Result{Count: len(ids)}
}

// archivable returns the executions of c, or why they have to stay.
func (s *retention) archivable(c command.ArchiveExecutions) ([]compute.ExecutionID, *compute.Error) {
	const width = len(compute.UUID{})
	n := len(c.Executions) / width
	if n == 0 || len(c.Executions)%width != 0 || c.Size <= 0 ||
		s.view.Format() < format.Trust || s.view.meta.Settings.Forget {
		return nil, compute.Errorf(compute.CodeInvalid, "an archive needs executions, and their blob a size").Named("archive")
	}
	ids := make([]compute.ExecutionID, 0, n)
	for text := range slices.Chunk(c.Executions, width) {
		ids = append(ids, executionFrom(text))
	}
	goes := make(map[compute.ExecutionID]bool, n)
	for _, id := range ids {
		goes[id] = true
	}
	if len(goes) != n {
		return nil, compute.Errorf(compute.CodeInvalid, "an execution is in the archive twice").Named("archive")
	}
	left := s.view.finished.Len() - n
	for _, id := range ids {
		if refusal := s.mayLeave(id, c.Month, left, goes); refusal != nil {
			return nil, refusal
		}
	}
	return ids, nil
}

// mayLeave returns why the execution id has to stay when `goes` leave and
// left others that have ended stay.
func (s *retention) mayLeave(
	id compute.ExecutionID, month, left int, goes map[compute.ExecutionID]bool,
) *compute.Error {
	stays := func(why string) *compute.Error {
		return compute.Errorf(compute.CodeConflict, "execution %s stays: %s", id, why).Named("archive_refused")
	}
	e, ok := s.view.executions.Get(id)
	switch {
	case !ok:
		return stays("it is not there")
	case !e.Status.Terminal():
		return stays("it has not ended")
	case archiver{s.view}.staysWithParent(e):
		if !goes[e.Parent] {
			return stays("so does its parent")
		}
	case !archiver{s.view}.pastRetention(e.FinishedAt, left):
		return stays("it is neither too old nor one too many")
	case archive.MonthOf(e.FinishedAt) != month:
		return stays("it ended in another month")
	}
	for _, child := range (archiver{s.view}).stateChildren(e) {
		if !goes[child] {
			return stays("so does a sub-execution of it")
		}
	}
	return nil
}
