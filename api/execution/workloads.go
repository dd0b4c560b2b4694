package execution

import (
	"context"
	"iter"
	"net/http"

	"berth/api/edge"
	"berth/api/edge/answer"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
)

// workloads serves Workload Management: executions of any kind.
type workloads struct {
	executions
}

// Routes returns the routes of the group.
func (g *workloads) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: edge.Root + "/workloads/list", Tag: "Workload Management", Need: edge.NeedCaller,
			Summary: "The executions that have not ended, newest first.",
			Query:   edge.Type[wire.WorkloadsQuery](), Reply: edge.Type[[]wire.ExecutionSummary](), Handle: g.listWorkloads,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/workloads/abort/{id}", Tag: "Workload Management",
			Need:    edge.NeedCaller,
			Summary: "End an execution of any kind at once. It becomes aborted.",
			Reply:   edge.Type[wire.Stopped](), Handle: g.abortWorkload,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/workloads/stop/{id}", Tag: "Workload Management", Need: edge.NeedCaller,
			Summary: "End an execution of any kind gracefully: SIGTERM first. It becomes cancelled.",
			Reply:   edge.Type[wire.Stopped](), Handle: g.stopWorkload,
		},
	}
}

// listWorkloads answers a page of the executions that have not ended.
func (g *workloads) listWorkloads(r *edge.Request) (any, error) {
	in := r.Query.(*wire.WorkloadsQuery)
	live := r.View.Live(r.Caller.Actor.Org)
	if in.Cursor != "" {
		last, err := g.lastSeen(r, in.Cursor)
		if err != nil {
			return nil, err
		}
		live = r.View.LiveAfter(last)
	}
	return answer.List{Before: "[", After: "]", Rows: func(context.Context) iter.Seq2[any, error] {
		return func(yield func(any, error) bool) {
			n := 0
			for e := range live {
				if n++; !yield(handler.SummaryOf(r.View, e), nil) || n == in.Limit {
					return
				}
			}
		}
	}}, nil
}

// lastSeen returns the execution that a cursor names. It may have ended, and been
// archived or deleted, since its page was read.
func (g *workloads) lastSeen(r *edge.Request, cursor string) (*compute.Execution, error) {
	id, err := compute.ParseExecutionID(cursor)
	if err == nil {
		if err = g.LoadArchived(r, id); err != nil {
			return nil, err
		}
		if e, ok := r.View.Listed(r.Caller.Actor.Org, id); ok {
			return e, nil
		}
	}
	f := new(wire.Faults)
	f.Value("no execution of the organization: begin again without a cursor", "query", "cursor")
	return nil, f
}

func (g *workloads) abortWorkload(r *edge.Request) (any, error) {
	return Stop(g.Core, r, compute.StopHard)
}

func (g *workloads) stopWorkload(r *edge.Request) (any, error) {
	return Stop(g.Core, r, compute.StopGraceful)
}
