package billing

import (
	"testing"
	"time"

	"berth/compute"
)

// TestUsageHasWhatIsCharged adds an execution that was preempted once: its earlier attempt is
// charged, so it is used too.
func TestUsageHasWhatIsCharged(t *testing.T) {
	var row usageRow
	row.add(&compute.Execution{
		Owed: 20 * time.Second, Duration: 10 * time.Second,
		Request: compute.Request{GPUType: "t4", GPUs: 2, MilliGPU: compute.WholeGPU},
	})
	if got := row.wire(); got.Seconds != 30 || got.GPUSeconds != 60 {
		t.Errorf("got %v s and %v GPU s, want 30 and 60", got.Seconds, got.GPUSeconds)
	}
}
