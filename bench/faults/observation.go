package faults

import (
	"berth/api/wire"
	"berth/bench/faults/check"
	"berth/compute"
)

// observationOf returns the state of an execution that may have had attempts.
// The attempts of an ended execution need not be known.
func observationOf(e *wire.ExecutionSummary, attempts []wire.Attempt) check.Observation {
	at := check.Observation{Status: e.Status, Restarts: e.Retries}
	if e.Metadata != nil {
		at.Attempt = e.Metadata.Attempt
	}
	for _, a := range attempts {
		if a.Reason == nil {
			continue
		}
		switch *a.Reason {
		case compute.ReasonDrained.String(), compute.ReasonPreempted.String():
			at.Restarts++
		}
	}
	return at
}
