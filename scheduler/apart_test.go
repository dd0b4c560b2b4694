package scheduler_test

import (
	"fmt"
	"testing"

	"berth/compute"
	"berth/scheduler"
)

// TestPackKeepsReplicasApart holds that replicas of a service are on different nodes
// where they fit, those that stop not counted, and packed as all else where not.
func TestPackKeepsReplicasApart(t *testing.T) {
	replica := func(n, service int) *compute.Execution {
		e := execution(n, whole("t4", 1))
		e.Kind, e.Parent = compute.KindReplica, executionID(service)
		return e
	}
	nodes := []*compute.Node{gpuNode(1, "t4", 4), gpuNode(2, "t4", 4), gpuNode(3, "t4", 8)}
	tests := []struct {
		name         string
		runs, queued []*compute.Execution
		stops        int // The execution that is to stop; 0 for none.
		want         string
	}{
		{"none yet", nil, []*compute.Execution{replica(1, 90)}, 0, "[1@n1[0]]"},
		{
			"in one pass", nil,
			[]*compute.Execution{replica(1, 90), replica(2, 90), replica(3, 90), replica(4, 90)},
			0,
			"[1@n1[0] 2@n2[0] 3@n3[0] 4@n1[1]]",
		},
		{"of two services", nil, []*compute.Execution{replica(1, 90), replica(2, 91)}, 0, "[1@n1[0] 2@n1[1]]"},
		{"in the next pass", []*compute.Execution{replica(1, 90)}, []*compute.Execution{replica(2, 90)}, 0, "[2@n2[0]]"},
		{"one stops", []*compute.Execution{replica(1, 90)}, []*compute.Execution{replica(2, 90)}, 1, "[2@n1[1]]"},
		{"none of a service", []*compute.Execution{replica(1, 90)}, []*compute.Execution{execution(2, whole("t4", 1))}, 0, "[2@n1[1]]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, nodes...)
			for _, e := range test.runs {
				w.submit(e)
				w.commit(scheduler.Pack(w.view()))
			}
			if test.stops > 0 {
				stopped := *w.known[executionID(test.stops)]
				stopped.Stop = compute.StopGraceful
				w.known[stopped.ID] = &stopped
			}
			w.submit(test.queued...)
			view := w.view()
			if got := fmt.Sprint(where(view, scheduler.Pack(view))); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
