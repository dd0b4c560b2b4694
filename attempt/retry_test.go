package attempt_test

import (
	"testing"

	"berth/attempt"
	"berth/compute"
)

func TestDecide(t *testing.T) {
	failed := func(why compute.Reason) *compute.Outcome {
		return &compute.Outcome{Status: compute.StatusSystemFailure, Reason: why}
	}
	ran := func(why compute.Reason) *compute.Outcome {
		o := failed(why)
		o.Ran = true
		return o
	}
	fresh, once := compute.Execution{}, compute.Execution{MaxRetries: 1}
	spent := compute.Execution{MaxRetries: 1, Retries: 1}
	stopped := compute.Execution{MaxRetries: 1, Stop: compute.StopGraceful}
	unlucky := compute.Execution{Avoid: make([]compute.NodeID, attempt.MaxUnstarted)}
	unluckyOnce := compute.Execution{MaxRetries: 1, Avoid: make([]compute.NodeID, attempt.MaxUnstarted)}
	drained := compute.Execution{Stop: compute.StopGraceful, Reason: compute.ReasonDrained}
	drainedOnce, drainedHard := drained, drained
	drainedOnce.MaxRetries, drainedHard.Stop = 1, compute.StopHard
	stop := &compute.Outcome{Status: compute.StatusCancelled, Reason: compute.ReasonStopped}
	stopRan := &compute.Outcome{Status: compute.StatusCancelled, Reason: compute.ReasonStopped, Ran: true}
	started := compute.Attempt{Started: true}
	tests := []struct {
		name    string
		e       compute.Execution
		a       compute.Attempt
		outcome *compute.Outcome // nil for a node that is lost.
		want    attempt.Next
	}{
		{"lost", fresh, started, nil, attempt.Ends},
		{"lost, never heard to start", fresh, compute.Attempt{}, nil, attempt.Ends},
		{"lost, may start again", once, started, nil, attempt.Retried},
		{"lost, no retries left", spent, started, nil, attempt.Ends},
		{"lost, being stopped", stopped, started, nil, attempt.Ends},
		{"start failed", fresh, compute.Attempt{}, failed(compute.ReasonStartFailed), attempt.Elsewhere},
		{"start failed, retries are kept", once, compute.Attempt{}, failed(compute.ReasonStartFailed), attempt.Elsewhere},
		{"start failed too often", unlucky, compute.Attempt{}, failed(compute.ReasonStartFailed), attempt.Ends},
		{"start failed too often, retries left", unluckyOnce, compute.Attempt{}, failed(compute.ReasonStartFailed), attempt.Retried},
		{"start failed, being stopped", stopped, compute.Attempt{}, failed(compute.ReasonStartFailed), attempt.Ends},
		{"start failed, and the state knows better", fresh, started, failed(compute.ReasonStartFailed), attempt.Ends},
		{"inputs lost", fresh, compute.Attempt{}, failed(compute.ReasonInputsLost), attempt.Elsewhere},
		{"cut off before the start", fresh, compute.Attempt{}, failed(compute.ReasonNodeLost), attempt.Elsewhere},
		{"cut off", fresh, started, ran(compute.ReasonNodeLost), attempt.Ends},
		{"supervisor lost: it may have run", fresh, compute.Attempt{}, failed(compute.ReasonSupervisorLost), attempt.Ends},
		{"supervisor lost, may start again", once, compute.Attempt{}, failed(compute.ReasonSupervisorLost), attempt.Retried},
		{"its code failed", once, started, &compute.Outcome{Status: compute.StatusFailed, Ran: true}, attempt.Ends},
		{"a drain ended it", drained, started, stopRan, attempt.Ends},
		{"a drain ended it before it started", drained, compute.Attempt{}, stop, attempt.Moved},
		{"a drain ended it, and the state knows better", drained, started, stop, attempt.Ends},
		{"a drain ended it, may start again", drainedOnce, started, stopRan, attempt.Moved},
		{"a drain ended it, its node is lost", drained, compute.Attempt{}, nil, attempt.Ends},
		{"a drain ended it, its node is lost, may start again", drainedOnce, started, nil, attempt.Moved},
		{"somebody aborts what a drain ended", drainedHard, compute.Attempt{}, stop, attempt.Ends},
		{"stopped before it started", stopped, compute.Attempt{}, stop, attempt.Ends},
		{"it completed before a drain ended it", drainedOnce, started, &compute.Outcome{Status: compute.StatusCompleted, Ran: true}, attempt.Ends},
		{"it failed before a drain ended it", drainedOnce, started, &compute.Outcome{Status: compute.StatusFailed, Reason: compute.ReasonExitCode, Ran: true}, attempt.Ends},
		{"it completed", once, started, &compute.Outcome{Status: compute.StatusCompleted, Ran: true}, attempt.Ends},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			end := attempt.GivenUp()
			if test.outcome != nil {
				end = attempt.EndingOf(test.outcome)
			}
			if got := attempt.Decide(&test.e, &test.a, end); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
