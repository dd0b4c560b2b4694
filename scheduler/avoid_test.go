package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/scheduler"
)

// TestPackAvoidsWhereNothingStarted: an execution that could not be started on a node
// goes to another one, or waits for a busy one. It goes back only where no other node
// could ever take it.
func TestPackAvoidsWhereNothingStarted(t *testing.T) {
	down := func(n *compute.Node) { n.State = compute.NodeDown }
	tests := []struct {
		name   string
		nodes  []*compute.Node
		avoid  []int
		want   string
		reason compute.Reason
	}{
		{"nothing to avoid", []*compute.Node{gpuNode(1, "t4", 1), gpuNode(2, "t4", 1)}, nil, "[1@n1[0]]", 0},
		{"another node", []*compute.Node{gpuNode(1, "t4", 1), gpuNode(2, "t4", 1)}, []int{1}, "[1@n2[0]]", 0},
		{"the third", []*compute.Node{gpuNode(1, "t4", 1), gpuNode(2, "t4", 1), gpuNode(3, "t4", 1)}, []int{2, 1}, "[1@n3[0]]", 0},
		{
			"another node is busy",
			[]*compute.Node{gpuNode(1, "t4", 1), used(gpuNode(2, "t4", 1), 8, 8, 1000)},
			[]int{1},
			"[]", compute.ReasonGPUsBusy,
		},
		{"no other has such GPUs", []*compute.Node{gpuNode(1, "t4", 1), gpuNode(2, "h100", 1)}, []int{1}, "[1@n1[0]]", 0},
		{"the others are down", []*compute.Node{gpuNode(1, "t4", 1), edited(gpuNode(2, "t4", 1), down)}, []int{1}, "[1@n1[0]]", 0},
		{"the only node", []*compute.Node{gpuNode(1, "t4", 1)}, []int{1}, "[1@n1[0]]", 0},
		{"a node that left", []*compute.Node{gpuNode(1, "t4", 1)}, []int{9}, "[1@n1[0]]", 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, test.nodes...)
			e := execution(1, whole("t4", 1))
			for _, n := range test.avoid {
				e.Avoid = append(e.Avoid, nodeID(n))
			}
			w.submit(e)
			plan := scheduler.Pack(w.view())
			if got := fmt.Sprint(where(w.view(), plan)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if got := len(plan.Waiting); (got > 0) != (test.reason != 0) || got > 0 && plan.Waiting[0].Reason != test.reason {
				t.Errorf("waits for %v, want %q", plan.Waiting, test.reason)
			}
		})
	}
}

// TestNoReservedPlaceWhereNothingStarted: an execution that could not be started on a
// node does not go back there on capacity reserved for another one while a node that
// could take it is busy.
func TestNoReservedPlaceWhereNothingStarted(t *testing.T) {
	for name, test := range map[string]struct {
		nodes   [][]string
		running []string
		places  uint64 // Places that the retried execution has had.
	}{
		"another node is busy": {[][]string{{"t4", "t4", "h100"}, {"l40s"}}, []string{"t4", "h100", "l40s"}, 1},
		"the only node":        {[][]string{{"t4", "t4", "h100"}}, []string{"t4", "h100"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(t, test.nodes...)
			s.must(command.SetFormat{Term: 1, Format: format.Newest})
			for _, profile := range test.running {
				s.submit(profile, limited(time.Hour))
			}
			s.pack()
			retried := s.submit("cpu", limited(time.Minute))
			s.pack()
			first := s.machine.View().Attempts(retried)[0]
			s.must(command.FinishAttempt{Node: first.Node, Outcome: compute.Outcome{
				Execution: retried, Epoch: first.Epoch, Status: compute.StatusSystemFailure, Reason: compute.ReasonStartFailed,
			}})
			if e := s.get(retried); e.Status != compute.StatusQueued || !e.Avoids(first.Node) {
				t.Fatalf("it is %s and avoids %v", e.Status, e.Avoid)
			}
			head := s.submit("t4.2x", prioritized(60), limited(time.Hour))
			other := s.submit("cpu", limited(time.Minute))
			s.pack()
			for id, want := range map[compute.ExecutionID]uint64{head: 0, retried: test.places, other: 1} {
				if e := s.get(id); e.Epoch != want {
					t.Errorf("%s has had %d places, want %d", e.Profile, e.Epoch, want)
				}
			}
		})
	}
}
