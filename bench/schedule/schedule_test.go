package schedule_test

import (
	"strings"
	"testing"
	"time"

	"berth/bench/schedule"
)

// TestRun runs a small measurement and checks that it is complete: everything
// is placed through Raft entries, and every figure is positive.
func TestRun(t *testing.T) {
	var steps []string
	r, err := schedule.Run(t.Context(), schedule.Config{
		Nodes: 40, Queued: 600, Rate: 200, Steady: 500 * time.Millisecond, Seed: 1, Dir: t.TempDir(),
		Progress: func(_, _ int, what string) { steps = append(steps, what) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Placed != 600 || r.Waiting != 0 || r.Plans < 1 || r.GPUs != 320 || r.Peers != 3 {
		t.Errorf("placed %d, %d wait, %d plans, %d GPUs, %d peers", r.Placed, r.Waiting, r.Plans, r.GPUs, r.Peers)
	}
	l := r.Latency
	if l == nil || l.Samples != 100 || l.Unplaced != 0 || l.P50 <= 0 || l.P99 < l.P50 || l.Max < l.P99 || l.P50 < l.SubmitP50/2 {
		t.Errorf("latency %+v", l)
	}
	for name, value := range map[string]float64{
		"placements": r.PlacementsPS, "seconds": r.Seconds, "bare raft": r.BareRaftPS, "submits": r.SubmitsPS,
		"commit share": r.CommitShare, "processor time": r.CPUMicros,
		"memory of a node": float64(r.Memory.PerNode), "memory of an execution": float64(r.Memory.PerQueued),
		"memory of an execution in the scheduler": float64(r.Memory.SchedulerPerQueued),
	} {
		if value <= 0 {
			t.Errorf("%s: %v", name, value)
		}
	}
	if len(r.Published) != 3 || len(steps) != 6 {
		t.Errorf("%d published figures, steps %v", len(r.Published), steps)
	}
}

// TestRunWithoutRoom checks that a stalled queue ends the measurement, which
// reports the rest.
func TestRunWithoutRoom(t *testing.T) {
	r, err := schedule.Run(t.Context(), schedule.Config{Nodes: 4, Queued: 400, Seed: 1, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if r.Placed == 0 || r.Waiting == 0 || r.Placed+r.Waiting != 400 || r.Latency != nil {
		t.Errorf("%d placed, %d wait, latency %+v", r.Placed, r.Waiting, r.Latency)
	}
}

func TestValidate(t *testing.T) {
	good := schedule.Config{Nodes: 1, Queued: 1, Rate: 1, Steady: time.Second}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	bad := schedule.Config{Nodes: 20_000, Queued: -1, Rate: 0, Steady: 2 * time.Hour}
	err := bad.Validate()
	for _, want := range []string{"nodes: 20000", "queued: -1", "rate: 0", "steady: 2h0m0s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	if _, err := schedule.Run(t.Context(), bad); err == nil {
		t.Error("a measurement of nonsense ran")
	}
}
