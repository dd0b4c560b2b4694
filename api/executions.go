package api

import (
	"context"
	"crypto/sha256"
	"maps"
	"net/http"
	"slices"
	"time"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// executions serves Streaming Execution and Execution Management. The groups of
// other kinds of executions embed it.
type executions struct {
	*core
}

// routes returns the routes of the group.
func (g *executions) routes() []route {
	const one = root + "/execution/{id}"
	return []route{
		{
			method: http.MethodPost, path: streaming + "/start", tag: "Streaming Execution", need: needCaller,
			summary: "Execute Python code.",
			large:   true, body: of[wire.PythonStart](), reply: of[wire.Started](), handle: g.startPython,
		},
		{
			method: http.MethodGet, path: streaming + "/{id}/status", tag: "Streaming Execution", need: needCaller,
			summary: "The status of an execution.",
			reply:   of[wire.ExecutionStatus](), handle: g.pythonStatus,
		},
		{
			method: http.MethodPost, path: streaming + "/abort/{id}", tag: "Streaming Execution", need: needCaller,
			summary: "End an execution at once.",
			reply:   of[wire.Stopped](), handle: g.abortPython,
		},
		{
			method: http.MethodGet, path: one, tag: "Execution Management", need: needCaller,
			summary: "The whole record of an execution. With wait, the answer is held until it changes or ends.",
			query:   of[wire.ExecutionQuery](), reply: of[wire.Execution](), handle: g.getExecution,
		},
		{
			method: http.MethodDelete, path: one, tag: "Execution Management", need: needCaller,
			summary: "Remove the code and the output of an execution that has ended. Its billing row stays.",
			reply:   of[wire.Stopped](), handle: g.deleteExecution,
		},
		{
			method: http.MethodGet, path: one + "/timing", tag: "Execution Management", need: needCaller,
			summary: "The time that an execution spent in each phase.",
			reply:   of[wire.TimingAnswer](), handle: g.getTiming,
		},
		{
			method: http.MethodGet, path: one + "/explain", tag: "Execution Management", need: needCaller,
			summary: "Explain an execution: nodes by typed reason, position in the queue, start estimate," +
				" and why it was placed where it is.",
			query: of[wire.ExplainQuery](), reply: of[wire.Explanation](), handle: g.explain,
		},
	}
}

// startPython accepts a Python execution.
func (g *executions) startPython(r *request) (any, error) {
	in := r.body.(*wire.PythonStart)
	if err := available(in); err != nil {
		return nil, err
	}
	e := g.newExecution(r, in)
	e.Kind, e.Profile = compute.KindPython, in.Profile()
	result, err := g.submit(r, in, e)
	if err != nil {
		return nil, err
	}
	return wire.Started{
		ExecutionID:  result.Execution,
		Status:       result.Status,
		StreamingURL: g.streamURL(r.base, result.Execution),
		Message:      "The execution is queued.",
	}, nil
}

// available refuses fields that a later version will support.
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

// newExecution returns the requested record. Apply fills fields that depend on
// the state.
func (g *executions) newExecution(r *request, in *wire.PythonStart) compute.Execution {
	e := compute.Execution{
		ID:              compute.ExecutionID{UUID: g.newID()},
		Org:             r.caller.actor.Org,
		User:            r.caller.actor.User,
		Key:             r.caller.actor.Key,
		FileName:        in.FileName,
		Timeout:         time.Duration(in.Timeout) * time.Second,
		DisconnectGrace: time.Duration(in.DisconnectGrace) * time.Second,
		Priority:        in.Priority,
		Tags:            in.Tags,
		CallbackURLs:    in.CallbackURLs,
		MaxCredits:      in.MaxCredits,
		Preemptible:     in.Preemptible,
		MaxRetries:      in.MaxRetries,
	}
	r.view.RecordImports(&e, slices.Sorted(maps.Keys(in.Files)))
	if in.Network == compute.NetworkNone.String() {
		e.Network = compute.NetworkNone
	}
	return e
}

// submit stores the bundle and proposes e. A repeat gets the first answer.
func (g *executions) submit(r *request, in *wire.PythonStart, e compute.Execution) (fsm.Result, error) {
	if r.repeat {
		return r.first, nil
	}
	command := fsm.Submit{Op: g.op(r), Actor: r.caller.actor, Execution: e}
	var err error
	command.Execution.Bundle, err = g.storeBundle(r.ctx, in, func() error { return r.view.CheckSubmit(command) })
	if err != nil {
		return fsm.Result{}, err
	}
	return g.propose(r, command)
}

// storeBundle encodes code and files. A bundle too large for a command is
// durable on other nodes when it returns; it is stored if check returns nil.
func (g *executions) storeBundle(
	ctx context.Context, in *wire.PythonStart, check func() error,
) (compute.BundleRef, error) {
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
	if err := check(); err != nil {
		return compute.BundleRef{}, err // Refused starts fill no disk.
	}
	ref.Hash, err = g.cfg.Blobs.Put(ctx, data)
	return ref, err
}

// find returns the execution that the path names, if it is the caller's and of
// one of kinds (any when there are none).
func (c *core) find(r *request, kinds ...compute.Kind) (*compute.Execution, error) {
	id, err := compute.ParseExecutionID(r.params["id"])
	if err != nil {
		return nil, errNotFound()
	}
	if err := c.dig(r, id); err != nil {
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

func (g *executions) pythonStatus(r *request) (any, error) { return g.status(r, streamingKinds()...) }

func (g *selections) selectionStatus(r *request) (any, error) {
	return g.status(r, compute.KindSelection)
}

// status answers the status of an execution.
func (g *executions) status(r *request, kinds ...compute.Kind) (any, error) {
	e, err := g.find(r, kinds...)
	if err != nil {
		return nil, err
	}
	return wire.ExecutionStatus{ExecutionID: e.ID, Status: e.Status, Errors: errorsOf(e)}, nil
}

func (g *executions) abortPython(r *request) (any, error) {
	return g.stop(r, compute.StopHard, streamingKinds()...)
}

func (g *selections) abortSelection(r *request) (any, error) {
	return g.stop(r, compute.StopHard, compute.KindSelection)
}

// stop proposes the end of an execution.
func (g *executions) stop(r *request, how compute.Stop, kinds ...compute.Kind) (any, error) {
	if r.repeat {
		return stopped(r.first), nil
	}
	e, err := g.find(r, kinds...)
	if err != nil {
		return nil, err
	}
	if r.view.FromArchive(e.ID) {
		return nil, errEnded(e)
	}
	result, err := g.propose(r, fsm.StopExecution{
		Op: g.op(r), Actor: r.caller.actor, Execution: e.ID, Stop: how,
	})
	if err != nil {
		return nil, g.orArchived(r, err, errEnded)
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
func (g *executions) deleteExecution(r *request) (any, error) {
	if r.repeat {
		// The first proposer may have ended before it deleted the output.
		ids := []compute.ExecutionID{r.first.Execution}
		for _, child := range r.view.Children(r.first.Execution) {
			ids = append(ids, child.ID)
		}
		g.deleteOutput(r, ids)
		return deleted(r.first), nil
	}
	e, err := g.find(r)
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
	result, err := g.propose(r, fsm.DeleteExecution{Op: g.op(r), Actor: r.caller.actor, Execution: e.ID})
	if err != nil {
		return nil, g.orArchived(r, err, errArchived)
	}
	ids := []compute.ExecutionID{e.ID}
	if e.Selection != nil {
		ids = append(ids, e.Selection.Children...)
	}
	g.deleteOutput(r, ids)
	return deleted(result), nil
}

// deleteOutput removes the output of executions whose records are gone. Output
// on nodes that do not answer is unreachable; those nodes prune it later.
func (g *executions) deleteOutput(r *request, ids []compute.ExecutionID) {
	for _, id := range ids {
		if err := g.cfg.Logs.Delete(r.ctx, id); err != nil {
			g.log.Warn("output not deleted", "execution", id, "err", err)
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
func (g *executions) getTiming(r *request) (any, error) {
	e, err := g.find(r)
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

// seconds returns d in seconds, to the millisecond, at least 0: the instants
// come from different clocks.
func seconds(d time.Duration) float64 { return float64(max(d, 0).Milliseconds()) / 1000 }
