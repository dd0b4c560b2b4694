package node_test

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"berth/loop"
	"berth/node/nodetest"
)

// TestNodeAtRestHasOneProcessor checks that a node of which nothing is asked runs on one
// processor, and one that answers on all.
func TestNodeAtRestHasOneProcessor(t *testing.T) {
	t.Parallel() // It mostly waits.
	if runtime.NumCPU() == 1 || os.Getenv("GOMAXPROCS") != "" {
		t.Log("nodes have one, or what the environment says")
		return
	}
	n := nodetest.StartMeasured(t, 1, func(*nodetest.NodeConfig) {}).Nodes[0]
	processors := func() float64 { return seriesOf(t, n.URL, "go_sched_gomaxprocs_threads") }
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := loop.Until(ctx, 2*time.Second, func() bool { return processors() == 1 }); err != nil {
		t.Fatalf("at rest it has %v processors", processors())
	}
	nodetest.Eventually(t, 3*time.Minute, "more processors", func() bool { return processors() > 1 })
}
