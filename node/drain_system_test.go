package node_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/executor/prepare"
	"berth/node/nodetest"
)

// mustShowGaps waits until every node shows what this machine's kernel does not
// enforce.
func mustShowGaps(t *testing.T, root *client.Client) {
	t.Helper()
	want, err := prepare.Gaps()
	if err != nil {
		t.Fatal(err)
	}
	nodetest.Eventually(t, endWait, fmt.Sprintf("gaps %v", want), func() bool {
		records, err := root.Nodes(t.Context())
		return err == nil && !slices.ContainsFunc(records, func(n wire.Node) bool { return !slices.Equal(n.Gaps, want) })
	})
}

// TestDrainOutlivesTheLeader drains a node through a follower while it executes
// an execution that may restart and one that may not. Another server leads
// before the deadline. The first execution is queued again, the second ends
// unbilled, and the node is stopped and removed.
func TestDrainOutlivesTheLeader(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.NewWith(t, 3, func(_ int, cfg *nodetest.NodeConfig) { cfg.Limits.PreemptNotice = 0 })
	account := c.MustAccount("acme")
	follower := c.Follower()
	api := nodetest.MustClient(t, account.Key, follower.URL())
	root := nodetest.MustClient(t, c.RootToken, follower.URL())
	mustVoters(t, root, 3)
	mustShowGaps(t, root)
	start := func(preemptible bool, retries int) compute.ExecutionID {
		t.Helper()
		started, err := api.Submit(t.Context(), client.Start{
			Code: "import time\ntime.sleep(300)\n", ExecutionType: "t4", Timeout: 400,
			Preemptible: preemptible, MaxRetries: retries,
		})
		if err != nil {
			t.Fatal(err)
		}
		nodetest.Eventually(t, endWait, "the execution to run", func() bool {
			e, err := api.Execution(t.Context(), started.ExecutionID, 0)
			return err == nil && e.Status == compute.StatusRunning
		})
		return started.ExecutionID
	}
	moves, retried, stays := start(true, 0), start(false, 1), start(false, 0)
	victim := c.Nodes[2] // The one with the t4.
	n, err := root.DrainNodeWithin(t.Context(), victim.ID(), 5*time.Second)
	if err != nil || n.LiveWork != 3 || n.Leaving != 2 || n.DrainBy == nil {
		t.Fatalf("drained as %+v, %v", n, err)
	}
	if _, err := root.TransferLeadership(t.Context(), compute.NodeID{}); err != nil {
		t.Fatal(err)
	}
	ended := mustFinish(t, api, stays)
	if ended.Status != compute.StatusSystemFailure || ended.StatusDetails == nil || *ended.StatusDetails != "drained" {
		t.Errorf("got %v (%v), want system_failure (drained)", ended.Status, ended.StatusDetails)
	}
	if ended.Billed != nil && *ended.Billed != 0 {
		t.Errorf("billed %v", *ended.Billed)
	}
	for _, id := range []compute.ExecutionID{moves, retried} {
		nodetest.Eventually(t, endWait, "the others to wait", func() bool {
			e, err := api.Execution(t.Context(), id, 0)
			return err == nil && e.Status == compute.StatusQueued && e.Retries == 0
		})
	}
	nodetest.Eventually(t, endWait, "the node to execute nothing", func() bool {
		records, err := root.Nodes(t.Context())
		if err != nil {
			return false
		}
		for _, record := range records {
			if record.ID == victim.ID() {
				return record.LiveWork == 0
			}
		}
		return false
	})
	for _, id := range []compute.ExecutionID{moves, retried} {
		if err := api.Abort(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	mustBalance(t, api)
	victim.Stop()
	rest := nodetest.MustClient(t, c.RootToken, c.Nodes[0].URL(), c.Nodes[1].URL())
	nodetest.Eventually(t, endWait, "the removal", func() bool { return rest.RemoveNode(t.Context(), victim.ID()) == nil })
	records, err := rest.Nodes(t.Context())
	if err != nil || slices.ContainsFunc(records, func(n wire.Node) bool { return n.ID == victim.ID() }) {
		t.Errorf("after the removal there are %+v, %v", records, err)
	}
}
