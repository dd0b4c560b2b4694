package api

import (
	"berth/api/wire"
	"berth/compute"
)

// maxWorkloads is how many executions the list of workloads holds: as many as
// an organization may have waiting and live by default.
const maxWorkloads = 11_000

// listWorkloads answers the executions that have not ended.
func (s *Server) listWorkloads(r *request) (any, error) {
	out := []wire.ExecutionSummary{}
	for e := range r.view.Live(r.caller.actor.Org) {
		if len(out) == maxWorkloads {
			break
		}
		out = append(out, summaryOf(r.view, e))
	}
	return out, nil
}

func (s *Server) abortWorkload(r *request) (any, error) { return s.stop(r, compute.StopHard) }

func (s *Server) stopWorkload(r *request) (any, error) { return s.stop(r, compute.StopGraceful) }
