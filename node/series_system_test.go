package node_test

import (
	"testing"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
	"berth/node/nodetest"
)

// TestMetricsFromEveryNode asks every node what an execution does, while it runs and
// after its end.
func TestMetricsFromEveryNode(t *testing.T) {
	t.Parallel() // It mostly waits.
	c := nodetest.New(t, 3)
	account := c.MustAccount("acme")
	api := nodetest.MustClient(t, account.Key, c.Follower().URL())
	started, err := api.Submit(t.Context(), client.Start{Code: "while True: pass", ExecutionType: "a100", Timeout: 600})
	if err != nil {
		t.Fatal(err)
	}
	var got wire.ExecutionMetrics
	nodetest.Eventually(t, endWait, "a busy GPU to be measured", func() bool {
		got, err = api.Metrics(t.Context(), started.ExecutionID, client.MetricsQuery{Step: 1e9})
		if err != nil {
			t.Fatal(err)
		}
		n := len(got.GPUUtilization)
		return n > 1 && got.GPUUtilization[n-1].Value > 0
	})
	if len(got.CPUUsage) == 0 || len(got.MemoryUsed) == 0 || got.MemoryUsed[0].Value <= 0 || len(got.GPUPower) == 0 ||
		got.MemoryTotal[0].Value <= got.MemoryUsed[0].Value || !got.Simulated || got.Hostname == "" {
		t.Errorf("got %+v", got)
	}
	if err := api.Abort(t.Context(), started.ExecutionID); err != nil {
		t.Fatal(err)
	}
	if e := mustFinish(t, api, started.ExecutionID); e.Status != compute.StatusAborted {
		t.Fatalf("it is %v", e.Status)
	}
	nodetest.Eventually(t, endWait, "every node to answer the same", func() bool {
		var last *wire.ExecutionMetrics
		for _, n := range c.Nodes {
			m, err := nodetest.MustClient(t, account.Key, n.URL()).Metrics(t.Context(), started.ExecutionID, client.MetricsQuery{Step: 1e9})
			if err != nil || len(m.GPUUtilization) < len(got.GPUUtilization) {
				t.Fatalf("%d points after %d, %v", len(m.GPUUtilization), len(got.GPUUtilization), err)
			}
			if last != nil && len(last.CPUUsage) != len(m.CPUUsage) {
				return false // The last second was written meanwhile.
			}
			last = &m
		}
		return true
	})
	if err := api.Delete(t.Context(), started.ExecutionID); err != nil {
		t.Fatal(err)
	}
	if m, err := api.Metrics(t.Context(), started.ExecutionID, client.MetricsQuery{}); err == nil && len(m.CPUUsage) > 0 {
		t.Errorf("deleted, it still has %d points", len(m.CPUUsage))
	}
}
