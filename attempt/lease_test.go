package attempt_test

import (
	"testing"
	"time"

	"berth/attempt"
	"berth/compute"
)

// TestTermsOfLeases: for every grace, a supervisor stops its attempt before the leader
// gives the attempt up.
func TestTermsOfLeases(t *testing.T) {
	tests := []struct {
		name        string
		execution   compute.Execution
		lease, lost time.Duration
	}{
		{"stays where it is", compute.Execution{DisconnectGrace: 10 * time.Minute}, 10 * time.Minute, 10*time.Minute + 10*time.Second},
		{"no grace asked for", compute.Execution{}, 15 * time.Second, 25 * time.Second},
		{"less than the least", compute.Execution{DisconnectGrace: time.Second}, 15 * time.Second, 25 * time.Second},
		{"may start elsewhere", compute.Execution{DisconnectGrace: 10 * time.Minute, MaxRetries: 1}, 15 * time.Second, 25 * time.Second},
		{
			"has no retries left",
			compute.Execution{DisconnectGrace: 10 * time.Minute, MaxRetries: 1, Retries: 1},
			10 * time.Minute, 10*time.Minute + 10*time.Second,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			lease, lost := attempt.LeaseOf(&test.execution), attempt.LostAfter(&test.execution)
			if lease != test.lease || lost != test.lost {
				t.Errorf("lease %v, lost after %v; want %v and %v", lease, lost, test.lease, test.lost)
			}
		})
	}
}

func TestLostIsPastTheLeaseAndTheMargin(t *testing.T) {
	work := func(grace time.Duration) compute.Work {
		return compute.Work{Execution: &compute.Execution{DisconnectGrace: grace}, Attempt: &compute.Attempt{}}
	}
	all := []compute.Work{work(0), work(10 * time.Minute)}
	for _, test := range []struct {
		silent time.Duration
		want   int
	}{
		{25 * time.Second, 0}, {26 * time.Second, 1}, {10 * time.Minute, 1}, {11 * time.Minute, 2},
	} {
		if got := attempt.Lost(all, test.silent); len(got) != test.want {
			t.Errorf("after %v %d are lost, want %d", test.silent, len(got), test.want)
		}
	}
}

// TestStateOfSilence: a node is down when it is silent for longer than its TTL, and
// up again when it was heard.
func TestStateOfSilence(t *testing.T) {
	for _, test := range []struct {
		silence attempt.Silence
		was     compute.NodeState
		want    compute.NodeState
	}{
		{attempt.Silence{For: attempt.NodeTTL, Heard: true}, compute.NodeUp, compute.NodeUp},
		{attempt.Silence{For: attempt.NodeTTL, Heard: true}, compute.NodeDown, compute.NodeUp},
		{attempt.Silence{For: attempt.NodeTTL + 1, Heard: true}, compute.NodeUp, compute.NodeDown},
		{attempt.Silence{For: attempt.NodeTTL}, compute.NodeUp, compute.NodeUp},
		{attempt.Silence{For: attempt.NodeTTL}, compute.NodeDown, compute.NodeDown},
		{attempt.Silence{For: attempt.NodeTTL + 1}, compute.NodeUp, compute.NodeDown},
	} {
		if got := test.silence.State(test.was); got != test.want {
			t.Errorf("%+v makes one that was %v %v, want %v", test.silence, test.was, got, test.want)
		}
	}
}
