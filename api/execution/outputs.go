package execution

import (
	"context"
	"net/http"
	"strconv"

	"berth/api/edge"
	"berth/api/edge/answer"
	"berth/compute"
)

// outputs serves the output of executions as server-sent events.
type outputs struct {
	executions
}

// Routes returns the routes of the group.
func (g *outputs) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: edge.StreamRoot + "/stream/{id}", Tag: "Streaming Execution", Need: edge.NeedStream,
			Summary: "The output as server-sent events, from its beginning or after Last-Event-ID.",
			Accepts: []string{answer.EventStream}, Handle: g.streamOutput,
		},
		{
			Method: http.MethodPost, Path: edge.StreamRoot + "/stream/{id}", Tag: "Streaming Execution", Need: edge.NeedStream,
			Summary: "The same as GET.",
			Accepts: []string{answer.EventStream}, Handle: g.streamOutput,
		},
	}
}

// streamURL returns the URL of an execution's output, which needs no other
// credential.
func (g *executions) streamURL(base string, id compute.ExecutionID) string {
	return base + edge.StreamRoot + "/stream/" + id.String() + "?token=" + g.Credentials.StreamToken(id)
}

// streamOutput answers with the output of an execution as it is written.
func (g *outputs) streamOutput(r *edge.Request) (any, error) {
	e, err := g.findStream(r)
	if err != nil {
		return nil, err
	}
	after, err := lastEvent(r)
	if err != nil {
		return nil, err
	}
	release, err := g.TakeStream(r, e.Org)
	if err != nil {
		return nil, err
	}
	return answer.Events(func(ctx context.Context, w *answer.EventWriter) {
		defer release()
		out := &stream{of: &g.executions, id: e.ID, after: after, w: w}
		if err := out.serve(ctx, e); err != nil {
			r.Log(g.Log).Debug("stream ended early", "execution", e.ID, "err", err)
		}
	}), nil
}

// findStream returns the execution in the path, for the stream's token or a
// credential of its organization.
func (g *outputs) findStream(r *edge.Request) (*compute.Execution, error) {
	if r.Caller.User != nil {
		return g.Find(r)
	}
	id, err := compute.ParseExecutionID(r.Params["id"])
	if err != nil {
		return nil, edge.NotFound()
	}
	view, err := r.View.LoadArchived(compute.OrgID{}, id, g.OpenArchive(r.Ctx))
	if err != nil {
		return nil, err
	}
	e, ok := view.AnyExecution(id)
	if !ok {
		return nil, edge.NotFound()
	}
	return e, nil
}

// lastEvent returns the sequence number after which the client resumes.
func lastEvent(r *edge.Request) (uint64, error) {
	if r.LastEventID == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(r.LastEventID, 10, 64)
	if err != nil {
		return 0, compute.Errorf(compute.CodeInvalid, "Last-Event-ID is not the id of an event of this stream.")
	}
	return n, nil
}
