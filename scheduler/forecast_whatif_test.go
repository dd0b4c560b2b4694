package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"berth/compute"
	"berth/fsm/command"
	"berth/scheduler/forecast"
)

// TestWhatIf checks forecasts of a queue on other nodes.
func TestWhatIf(t *testing.T) {
	c := newCluster(t, []string{"h100", "h100"}, []string{"t4"})
	var all []compute.ExecutionID
	for _, profile := range []string{"h100.2x", "h100.2x", "h100", "t4"} {
		all = append(all, c.submit(profile))
	}
	c.pack()
	v := c.machine.View()
	nodes := slices.Collect(v.Nodes())
	more := compute.Node{ID: compute.NodeID{UUID: compute.UUID{0xff}}, VCPUMilli: 32000, MemoryMiB: 256 << 10}
	for i := range 4 {
		more.GPUs = append(more.GPUs, compute.GPU{ID: compute.GPUID("new-" + string(rune('0'+i))), Type: "h100", Index: i})
	}
	tests := []struct {
		name                string
		change              compute.WhatIf
		starts, waits, lost int
		placed              compute.NodeID
	}{
		{"nothing", compute.WhatIf{}, 0, 2, 0, compute.NodeID{}},
		{"more", compute.WhatIf{Add: []compute.Node{more}}, 2, 0, 0, more.ID},
		{"drained", compute.WhatIf{Add: []compute.Node{more}, Drain: []compute.NodeID{nodes[0].ID, nodes[1].ID}}, 2, 0, 0, more.ID},
		{"less", compute.WhatIf{Remove: []compute.NodeID{nodes[0].ID}}, 0, 2, 1, compute.NodeID{}},
		{"less, named twice", compute.WhatIf{Remove: []compute.NodeID{nodes[0].ID, nodes[0].ID}}, 0, 2, 1, compute.NodeID{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := forecast.WhatIf(t.Context(), v, tt.change)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Starts) != tt.starts || len(got.Waiting) != tt.waits || got.Lost != tt.lost || got.Now != 0 {
				t.Errorf("got %+v", got)
			}
			for _, a := range got.Starts {
				if a.Node != tt.placed {
					t.Errorf("%s would start on %s", a.Execution, a.Node)
				}
			}
			if len(tt.change.Remove) > 0 && got.Waiting[0].Reason != compute.ReasonNeverFits {
				t.Errorf("without its node it waits for %v", got.Waiting[0].Reason)
			}
		})
	}
	c.must(command.Tick{Term: 1}) // The view of the question was not touched.
	if e := c.get(all[1]); e.Status != compute.StatusQueued || e.Reason != compute.ReasonGPUsBusy {
		t.Errorf("after the questions it is %v, %v", e.Status, e.Reason)
	}
}

// TestQuestionsEndWithTheirContext holds that nothing is computed for a caller that
// has gone.
func TestQuestionsEndWithTheirContext(t *testing.T) {
	c := newCluster(t, []string{"t4"})
	c.submit("t4")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := forecast.WhatIf(ctx, c.machine.View(), compute.WhatIf{}); !errors.Is(err, context.Canceled) {
		t.Errorf("what-if returns %v", err)
	}
}

// countedView is a stage that counts reads of its queue.
type countedView struct {
	*stage

	read int
}

func (v *countedView) Line(priority int, org compute.OrgID, after *compute.Execution, limit int) []*compute.Execution {
	out := v.stage.Line(priority, org, after, limit)
	v.read += len(out)
	return out
}

// TestWhatIfReadsTheQueueOnce holds that a question costs no more for each
// execution of a long queue than for one of a short one.
func TestWhatIfReadsTheQueueOnce(t *testing.T) {
	v := &countedView{stage: newStage()}
	for n := range 20 {
		v.nodes = append(v.nodes, gpuNode(n+1, "t4", 8))
	}
	for n := range 3000 {
		e := execution(n+1, whole("t4", 1))
		e.Reason = compute.ReasonGPUsBusy
		v.queue = append(v.queue, e)
	}
	got, err := forecast.WhatIf(t.Context(), v, compute.WhatIf{})
	if err != nil || got.Now != 160 || len(got.Starts) != 160 || len(got.Waiting) != 2840 {
		t.Fatalf("%d start, %d wait: %v", len(got.Starts), len(got.Waiting), err)
	}
	if v.read != 3000 {
		t.Errorf("%d executions were read of a queue of 3,000", v.read)
	}
}

// BenchmarkWhatIf is a question about a long queue.
func BenchmarkWhatIf(b *testing.B) {
	for _, queued := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("queued=%d", queued), func(b *testing.B) {
			s := newStage()
			for n := range 500 {
				s.nodes = append(s.nodes, gpuNode(n+1, "t4", 8))
			}
			for n := range queued {
				s.queue = append(s.queue, execution(n+1, whole("t4", 1)))
			}
			for b.Loop() {
				if _, err := forecast.WhatIf(b.Context(), s, compute.WhatIf{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
