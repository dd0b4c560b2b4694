package execution

import (
	"net/http"
	"time"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/submission"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// streaming is the path of the group.
const streaming = edge.Root + "/execution/streaming"

// executions serves Streaming Execution and Execution Management. The groups of
// other kinds of executions embed it.
type executions struct {
	*handler.Core

	ended   endedCache
	endings *endings
}

// newExecutions returns what the groups of executions of a server share.
func newExecutions(c *handler.Core) executions {
	return executions{c, newEndedCache(), &endings{all: map[compute.ExecutionID]*awaited{}}}
}

// Routes returns the routes of the group.
func (g *executions) Routes() []edge.Route {
	const one = edge.Root + "/execution/{id}"
	return []edge.Route{
		{
			Method: http.MethodPost, Path: streaming + "/start", Tag: "Streaming Execution", Need: edge.NeedCaller,
			Summary: "Execute Python code.",
			Large:   true, Body: edge.Type[wire.PythonStart](), Reply: edge.Type[wire.Started](), Handle: g.startPython,
		},
		{
			Method: http.MethodGet, Path: streaming + "/{id}/status", Tag: "Streaming Execution", Need: edge.NeedCaller,
			Summary: "The status of an execution.",
			Reply:   edge.Type[wire.ExecutionStatus](), Handle: g.pythonStatus,
		},
		{
			Method: http.MethodPost, Path: streaming + "/abort/{id}", Tag: "Streaming Execution", Need: edge.NeedCaller,
			Summary: "End an execution at once.",
			Reply:   edge.Type[wire.Stopped](), Handle: g.abortPython,
		},
		{
			Method: http.MethodGet, Path: one, Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "The whole record of an execution. With wait, the answer is held until it changes or ends.",
			Query:   edge.Type[wire.ExecutionQuery](), Reply: edge.Type[wire.Execution](), Handle: g.getExecution,
		},
		{
			Method: http.MethodDelete, Path: one, Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "Remove the code and the output of an execution that has ended. Its billing row stays.",
			Reply:   edge.Type[wire.Stopped](), Handle: g.deleteExecution,
		},
		{
			Method: http.MethodGet, Path: one + "/timing", Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "The time that an execution spent in each phase.",
			Reply:   edge.Type[wire.TimingAnswer](), Handle: g.getTiming,
		},
		{
			Method: http.MethodGet, Path: one + "/explain", Tag: "Execution Management", Need: edge.NeedCaller,
			Summary: "Explain an execution: nodes by typed reason, position in the queue, start estimate," +
				" and why it was placed where it is.",
			Query: edge.Type[wire.ExplainQuery](), Reply: edge.Type[wire.Explanation](), Handle: g.explain,
		},
	}
}

// startPython accepts a Python execution.
func (g *executions) startPython(r *edge.Request) (any, error) {
	in := r.Body.(*wire.PythonStart)
	if err := submission.Available(r, in); err != nil {
		return nil, err
	}
	e, err := submission.New(g.Core, r, in)
	if err != nil {
		return nil, err
	}
	e.Kind, e.Profile, e.GPUTypes = compute.KindPython, in.Profile(), in.Accepted()
	if e.Storage, err = submission.MountOf(r, &in.Mount, &in.Start, false); err != nil {
		return nil, err
	}
	result, err := submission.ProposeCode(g.Core, r, in, e)
	if err != nil {
		return nil, err
	}
	return g.started(r, result), nil
}

// streamingKinds are the kinds behind the path segment "streaming".
func streamingKinds() []compute.Kind {
	return []compute.Kind{compute.KindPython, compute.KindSubSelection}
}

func (g *executions) pythonStatus(r *edge.Request) (any, error) {
	return g.status(r, streamingKinds()...)
}

func (g *selections) selectionStatus(r *edge.Request) (any, error) {
	return g.status(r, compute.KindSelection)
}

// status answers the status of an execution.
func (g *executions) status(r *edge.Request, kinds ...compute.Kind) (any, error) {
	e, err := g.FindWith(r, (*fsm.View).Status, kinds...)
	if err != nil {
		return nil, err
	}
	return wire.ExecutionStatus{ExecutionID: e.ID, Status: e.Status, Errors: errorsOf(e)}, nil
}

func (g *executions) abortPython(r *edge.Request) (any, error) {
	return Stop(g.Core, r, compute.StopHard, streamingKinds()...)
}

func (g *selections) abortSelection(r *edge.Request) (any, error) {
	return Stop(g.Core, r, compute.StopHard, compute.KindSelection)
}

// deleteExecution removes the code and the output of an execution.
func (g *executions) deleteExecution(r *edge.Request) (any, error) {
	if r.Repeat {
		// The first proposer may have ended before it deleted the output.
		ids := []compute.ExecutionID{r.First.Execution}
		for _, child := range r.View.Children(r.First.Execution) {
			ids = append(ids, child.ID)
		}
		g.deleteOutput(r, ids)
		return deleted(r.First), nil
	}
	e, err := g.Find(r)
	if err != nil {
		return nil, err
	}
	if r.View.FromArchive(e.ID) {
		return nil, errArchived(e)
	}
	if !e.Status.Terminal() {
		return nil, compute.Errorf(compute.CodeConflict,
			"The execution is %s; only one that has ended can be deleted.", e.Status).Named("not_terminal")
	}
	result, err := g.Propose(r, command.DeleteExecution{Op: g.Op(r), Actor: r.Caller.Actor, Execution: e.ID})
	if err != nil {
		return nil, orArchived(g.Core, r, err, errArchived)
	}
	ids := []compute.ExecutionID{e.ID}
	ids = append(ids, e.Children()...)
	g.deleteOutput(r, ids)
	return deleted(result), nil
}

// deleteOutput removes the output of executions whose records are gone. Output
// on nodes that do not answer is unreachable; those nodes prune it later.
func (g *executions) deleteOutput(r *edge.Request, ids []compute.ExecutionID) {
	for _, id := range ids {
		if err := g.Config.Logs.Delete(r.Ctx, id); err != nil {
			r.Log(g.Log).Warn("output not deleted", "execution", id, "err", err)
		}
	}
}

// deleted is the answer to a deletion.
func deleted(result command.Result) wire.Stopped {
	return wire.Stopped{
		ExecutionID: result.Execution, Status: result.Status,
		Message: "The code and the output are deleted. The billing row stays.",
	}
}

// getTiming answers how long an execution was in each phase.
func (g *executions) getTiming(r *edge.Request) (any, error) {
	e, err := g.Find(r)
	if err != nil {
		return nil, err
	}
	return wire.TimingAnswer{Timing: timingOf(e, r.View.Now())}, nil
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

// started is the answer to an accepted execution.
func (g *executions) started(r *edge.Request, result command.Result) wire.Started {
	return wire.Started{
		ExecutionID:  result.Execution,
		Status:       result.Status,
		StreamingURL: g.streamURL(r.Base, result.Execution),
		Message:      "The execution is queued.",
	}
}
