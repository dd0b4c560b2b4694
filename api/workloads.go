package api

import (
	"context"
	"iter"
	"net/http"

	"berth/api/edge"
	"berth/api/wire"
	"berth/compute"
)

// workloads serves Workload Management: executions of any kind.
type workloads struct {
	executions
}

// routes returns the routes of the group.
func (g *workloads) routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: root + "/workloads/list", Tag: "Workload Management", Need: edge.NeedCaller,
			Summary: "The executions that have not ended, newest first.",
			Reply:   of[[]wire.ExecutionSummary](), Handle: g.listWorkloads,
		},
		{
			Method: http.MethodPost, Path: root + "/workloads/abort/{id}", Tag: "Workload Management", Need: edge.NeedCaller,
			Summary: "End an execution of any kind at once. It becomes aborted.",
			Reply:   of[wire.Stopped](), Handle: g.abortWorkload,
		},
		{
			Method: http.MethodPost, Path: root + "/workloads/stop/{id}", Tag: "Workload Management", Need: edge.NeedCaller,
			Summary: "End an execution of any kind gracefully: SIGTERM first. It becomes cancelled.",
			Reply:   of[wire.Stopped](), Handle: g.stopWorkload,
		},
	}
}

// maxWorkloads is the length of the list of workloads: the default limit of
// queued and live executions of an organization.
const maxWorkloads = 11_000

// listWorkloads answers the executions that have not ended.
func (g *workloads) listWorkloads(r *edge.Request) (any, error) {
	return edge.List{Before: "[", After: "]", Rows: func(context.Context) iter.Seq2[any, error] {
		return func(yield func(any, error) bool) {
			n := 0
			for e := range r.View.Live(r.Caller.Actor.Org) {
				if n++; !yield(summaryOf(r.View, e), nil) || n == maxWorkloads {
					return
				}
			}
		}
	}}, nil
}

func (g *workloads) abortWorkload(r *edge.Request) (any, error) { return g.stop(r, compute.StopHard) }

func (g *workloads) stopWorkload(r *edge.Request) (any, error) {
	return g.stop(r, compute.StopGraceful)
}
