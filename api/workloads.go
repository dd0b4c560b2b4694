package api

import (
	"context"
	"iter"
	"net/http"

	"berth/api/wire"
	"berth/compute"
)

// workloads serves Workload Management: executions of any kind.
type workloads struct {
	executions
}

// routes returns the routes of the group.
func (g *workloads) routes() []route {
	return []route{
		{
			method: http.MethodGet, path: root + "/workloads/list", tag: "Workload Management", need: needCaller,
			summary: "The executions that have not ended, newest first.",
			reply:   of[[]wire.ExecutionSummary](), handle: g.listWorkloads,
		},
		{
			method: http.MethodPost, path: root + "/workloads/abort/{id}", tag: "Workload Management", need: needCaller,
			summary: "End an execution of any kind at once. It becomes aborted.",
			reply:   of[wire.Stopped](), handle: g.abortWorkload,
		},
		{
			method: http.MethodPost, path: root + "/workloads/stop/{id}", tag: "Workload Management", need: needCaller,
			summary: "End an execution of any kind gracefully: SIGTERM first. It becomes cancelled.",
			reply:   of[wire.Stopped](), handle: g.stopWorkload,
		},
	}
}

// maxWorkloads is the length of the list of workloads: the default limit of
// queued and live executions of an organization.
const maxWorkloads = 11_000

// listWorkloads answers the executions that have not ended.
func (g *workloads) listWorkloads(r *request) (any, error) {
	return list{before: "[", after: "]", rows: func(context.Context) iter.Seq2[any, error] {
		return func(yield func(any, error) bool) {
			n := 0
			for e := range r.view.Live(r.caller.actor.Org) {
				if n++; !yield(summaryOf(r.view, e), nil) || n == maxWorkloads {
					return
				}
			}
		}
	}}, nil
}

func (g *workloads) abortWorkload(r *request) (any, error) { return g.stop(r, compute.StopHard) }

func (g *workloads) stopWorkload(r *request) (any, error) { return g.stop(r, compute.StopGraceful) }
