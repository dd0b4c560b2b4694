package faults

import (
	"berth/api/wire"
	"berth/bench/faults/check"
	"berth/compute"
)

// standingOf returns the state of an execution that may have had attempts. The
// attempts of an ended execution need not be known.
func standingOf(e *wire.ExecutionSummary, attempts []wire.Attempt) check.Standing {
	at := check.Standing{Status: e.Status, Anew: e.Retries}
	if e.Metadata != nil {
		at.Attempt = e.Metadata.Attempt
	}
	for _, a := range attempts {
		if a.Reason == nil {
			continue
		}
		switch *a.Reason {
		case compute.ReasonDrained.String(), compute.ReasonPreempted.String():
			at.Anew++
		}
	}
	return at
}
