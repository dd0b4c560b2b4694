package api

import (
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"time"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// startPython accepts a Python execution.
func (s *Server) startPython(r *request) (any, error) {
	in := r.body.(*wire.PythonStart)
	if err := available(in); err != nil {
		return nil, err
	}
	e := s.newExecution(r, in)
	e.Kind, e.Profile = compute.KindPython, in.Profile()
	result, err := s.submit(r, in, e)
	if err != nil {
		return nil, err
	}
	return wire.Started{
		ExecutionID:  result.Execution,
		Status:       result.Status,
		StreamingURL: s.streamURL(r.base, result.Execution),
		Message:      "The execution is queued.",
	}, nil
}

// available refuses what a later version will do.
func available(in *wire.PythonStart) error {
	for _, f := range []struct {
		name  string
		asked bool
	}{
		{"nbcode > 0", in.NBCode > 0},
		{"requirements_content", in.Requirements != ""},
		{"kernel_state", in.KernelState != ""},
	} {
		if f.asked {
			return errNotAvailable(f.name)
		}
	}
	return nil
}

// newExecution returns the record that in asks for. What depends on the state
// is filled when it is applied.
func (s *Server) newExecution(r *request, in *wire.PythonStart) compute.Execution {
	e := compute.Execution{
		ID:              compute.ExecutionID{UUID: s.newID()},
		Org:             r.caller.actor.Org,
		User:            r.caller.actor.User,
		Key:             r.caller.actor.Key,
		FileName:        in.FileName,
		Imports:         slices.Sorted(maps.Keys(in.Files)),
		Timeout:         time.Duration(in.Timeout) * time.Second,
		DisconnectGrace: time.Duration(in.DisconnectGrace) * time.Second,
		Priority:        in.Priority,
		Tags:            in.Tags,
		CallbackURLs:    in.CallbackURLs,
		MaxCredits:      in.MaxCredits,
		Preemptible:     in.Preemptible,
		MaxRetries:      in.MaxRetries,
	}
	if in.Network == compute.NetworkNone.String() {
		e.Network = compute.NetworkNone
	}
	return e
}

// submit stores the bundle and has the state accept e. The answer to a repeat
// is the first one's.
func (s *Server) submit(r *request, in *wire.PythonStart, e compute.Execution) (fsm.Result, error) {
	if r.repeat {
		return r.first, nil
	}
	ref, err := s.storeBundle(r.ctx, in)
	if err != nil {
		return fsm.Result{}, err
	}
	e.Bundle = ref
	return s.propose(r, fsm.Submit{Op: s.op(r), Actor: r.caller.actor, Execution: e})
}

// storeBundle encodes what the execution executes. What is too large for a
// command is durable on other nodes before this returns.
func (s *Server) storeBundle(ctx context.Context, in *wire.PythonStart) (compute.BundleRef, error) {
	bundle := compute.Bundle{
		Code: in.Code, FileName: in.FileName, ImportFiles: in.Files,
		PriorImports: in.PriorImports, Env: in.Env,
	}
	data, err := bundle.Encode()
	if err != nil {
		return compute.BundleRef{}, err
	}
	ref := compute.BundleRef{Hash: sha256.Sum256(data), Size: int64(len(data))}
	if len(data) <= compute.MaxInlineBundle {
		ref.Inline = data
		return ref, nil
	}
	ref.Hash, err = s.cfg.Blobs.Put(ctx, data)
	return ref, err
}

// find returns the execution that the path names, if it is the caller's and of
// one of kinds (any when there are none).
func (s *Server) find(r *request, kinds ...compute.Kind) (*compute.Execution, error) {
	id, err := compute.ParseExecutionID(r.params["id"])
	if err != nil {
		return nil, errNotFound()
	}
	if err := s.dig(r, id); err != nil {
		return nil, err
	}
	e, ok := r.view.Execution(r.caller.actor.Org, id)
	if !ok || (len(kinds) > 0 && !slices.Contains(kinds, e.Kind)) {
		return nil, errNotFound()
	}
	return e, nil
}

// streamingKinds are the kinds behind the path segment "streaming".
func streamingKinds() []compute.Kind {
	return []compute.Kind{compute.KindPython, compute.KindSubSelection}
}

func (s *Server) pythonStatus(r *request) (any, error) { return s.status(r, streamingKinds()...) }

func (s *Server) selectionStatus(r *request) (any, error) { return s.status(r, compute.KindSelection) }

// status answers where an execution stands.
func (s *Server) status(r *request, kinds ...compute.Kind) (any, error) {
	e, err := s.find(r, kinds...)
	if err != nil {
		return nil, err
	}
	return wire.ExecutionStatus{ExecutionID: e.ID, Status: e.Status, Errors: errorsOf(e)}, nil
}

func (s *Server) abortPython(r *request) (any, error) {
	return s.stop(r, compute.StopHard, streamingKinds()...)
}

func (s *Server) abortSelection(r *request) (any, error) {
	return s.stop(r, compute.StopHard, compute.KindSelection)
}

// stop asks for the end of an execution.
func (s *Server) stop(r *request, how compute.Stop, kinds ...compute.Kind) (any, error) {
	if r.repeat {
		return stopped(r.first), nil
	}
	e, err := s.find(r, kinds...)
	if err != nil {
		return nil, err
	}
	if r.view.FromArchive(e.ID) {
		return nil, errEnded(e)
	}
	result, err := s.propose(r, fsm.StopExecution{
		Op: s.op(r), Actor: r.caller.actor, Execution: e.ID, Stop: how,
	})
	if err != nil {
		return nil, s.orArchived(r, err, errEnded)
	}
	return stopped(result), nil
}

// stopped is the answer to a stop.
func stopped(result fsm.Result) wire.Stopped {
	message := "The execution is asked to end."
	if result.Status.Terminal() {
		message = "The execution has ended."
	}
	return wire.Stopped{ExecutionID: result.Execution, Status: result.Status, Message: message}
}

// deleteExecution removes the code and the output of an execution.
func (s *Server) deleteExecution(r *request) (any, error) {
	if r.repeat {
		// Whoever proposed it may have ended before the output was deleted.
		ids := []compute.ExecutionID{r.first.Execution}
		for _, child := range r.view.Children(r.first.Execution) {
			ids = append(ids, child.ID)
		}
		s.deleteOutput(r, ids)
		return deleted(r.first), nil
	}
	e, err := s.find(r)
	if err != nil {
		return nil, err
	}
	if r.view.FromArchive(e.ID) {
		return nil, errArchived(e)
	}
	if !e.Status.Terminal() {
		return nil, compute.Errorf(compute.CodeConflict,
			"The execution is %s; only one that has ended can be deleted.", e.Status).Named("not_terminal")
	}
	result, err := s.propose(r, fsm.DeleteExecution{Op: s.op(r), Actor: r.caller.actor, Execution: e.ID})
	if err != nil {
		return nil, s.orArchived(r, err, errArchived)
	}
	ids := []compute.ExecutionID{e.ID}
	if e.Selection != nil {
		ids = append(ids, e.Selection.Children...)
	}
	s.deleteOutput(r, ids)
	return deleted(result), nil
}

// deleteOutput removes the output of executions whose records are gone. What
// remains, on nodes that do not answer, nobody can reach; a node prunes it with
// the remains of other attempts, the oldest first.
func (s *Server) deleteOutput(r *request, ids []compute.ExecutionID) {
	for _, id := range ids {
		if err := s.cfg.Logs.Delete(r.ctx, id); err != nil {
			s.log.Warn("output not deleted", "execution", id, "err", err)
		}
	}
}

// deleted is the answer to a deletion.
func deleted(result fsm.Result) wire.Stopped {
	return wire.Stopped{
		ExecutionID: result.Execution, Status: result.Status,
		Message: "The code and the output are deleted. The billing row stays.",
	}
}

// getTiming answers how long an execution was in each phase.
func (s *Server) getTiming(r *request) (any, error) {
	e, err := s.find(r)
	if err != nil {
		return nil, err
	}
	return wire.TimingAnswer{Timing: timingOf(e, r.view.Now())}, nil
}

// timingOf returns the phases of e up to now.
func timingOf(e *compute.Execution, now compute.Instant) wire.Timing {
	end := now
	if e.Status.Terminal() {
		end = e.FinishedAt
	}
	or := func(at, other compute.Instant) compute.Instant {
		if at.IsZero() {
			return other
		}
		return at
	}
	exited := or(e.EndedAt, end)
	started := or(e.StartedAt, exited)
	placed := or(e.PlacedAt, started)
	t := wire.Timing{
		Queued:   seconds(placed.Sub(e.CreatedAt)),
		Starting: seconds(started.Sub(placed)),
		Running:  seconds(exited.Sub(started)),
		Total:    seconds(end.Sub(e.CreatedAt)),
	}
	if e.Ran && e.Duration > 0 {
		t.Running = seconds(e.Duration)
	}
	return t
}

// seconds returns d in seconds, to the millisecond; never less than none,
// because the instants are of different clocks.
func seconds(d time.Duration) float64 { return float64(max(d, 0).Milliseconds()) / 1000 }
