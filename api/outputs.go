package api

import (
	"context"
	"net/http"
	"strconv"

	"berth/compute"
)

// outputs serves the output of executions as server-sent events.
type outputs struct {
	executions
}

// routes returns the routes of the group.
func (g *outputs) routes() []route {
	return []route{
		{
			method: http.MethodGet, path: streamRoot + "/stream/{id}", tag: "Streaming Execution", need: needStream,
			summary: "The output as server-sent events, from its beginning or after Last-Event-ID.",
			accepts: []string{eventStream}, handle: g.streamOutput,
		},
		{
			method: http.MethodPost, path: streamRoot + "/stream/{id}", tag: "Streaming Execution", need: needStream,
			summary: "The same as GET.",
			accepts: []string{eventStream}, handle: g.streamOutput,
		},
	}
}

// streamURL returns the URL of an execution's output, which needs no other
// credential.
func (c *core) streamURL(base string, id compute.ExecutionID) string {
	return base + streamRoot + "/stream/" + id.String() + "?token=" + c.credentials.streamToken(id)
}

// streamOutput answers with the output of an execution as it is written.
func (g *outputs) streamOutput(r *request) (any, error) {
	e, err := g.findStream(r)
	if err != nil {
		return nil, err
	}
	after, err := lastEvent(r)
	if err != nil {
		return nil, err
	}
	release, err := g.takeStream(r, e.Org)
	if err != nil {
		return nil, err
	}
	return events(func(ctx context.Context, w *eventWriter) {
		defer release()
		out := &stream{core: g.core, id: e.ID, after: after, w: w}
		if err := out.serve(ctx, e); err != nil {
			g.log.Debug("stream ended early", "execution", e.ID, "err", err)
		}
	}), nil
}

// findStream returns the execution in the path, for the stream's token or a
// credential of its organization.
func (g *outputs) findStream(r *request) (*compute.Execution, error) {
	if r.caller.user != nil {
		return g.find(r)
	}
	id, err := compute.ParseExecutionID(r.params["id"])
	if err != nil {
		return nil, errNotFound()
	}
	view, err := r.view.LoadArchived(compute.OrgID{}, id, g.openArchive(r.ctx))
	if err != nil {
		return nil, err
	}
	e, ok := view.AnyExecution(id)
	if !ok {
		return nil, errNotFound()
	}
	return e, nil
}

// lastEvent returns the sequence number after which the client resumes.
func lastEvent(r *request) (uint64, error) {
	if r.lastEventID == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(r.lastEventID, 10, 64)
	if err != nil {
		return 0, compute.Errorf(compute.CodeInvalid, "Last-Event-ID is not the id of an event of this stream.")
	}
	return n, nil
}
