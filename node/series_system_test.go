package node_test

import (
	"slices"
	"testing"
	"time"

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
		return n > 2 && got.GPUUtilization[n-1].Value > 0
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
	checkMetricsWindow(t, api, started.ExecutionID)
	if err := api.Delete(t.Context(), started.ExecutionID); err != nil {
		t.Fatal(err)
	}
	if m, err := api.Metrics(t.Context(), started.ExecutionID, client.MetricsQuery{}); err == nil && len(m.CPUUsage) > 0 {
		t.Errorf("deleted, it still has %d points", len(m.CPUUsage))
	}
}

// checkMetricsWindow asks a follower for the points between two instants, and for steps of
// two seconds.
func checkMetricsWindow(t *testing.T, api *client.Client, id compute.ExecutionID) {
	t.Helper()
	ask := func(q client.MetricsQuery) wire.ExecutionMetrics {
		t.Helper()
		m, err := api.Metrics(t.Context(), id, q)
		if err != nil || len(m.Warnings) > 0 {
			t.Fatalf("%+v: %v, %v", q, m.Warnings, err)
		}
		return m
	}
	all := ask(client.MetricsQuery{Step: time.Second}).GPUUtilization
	if len(all) < 3 {
		t.Fatalf("it has %d points", len(all))
	}
	first, last := all[0].Timestamp, all[len(all)-2].Timestamp
	part := ask(client.MetricsQuery{Start: first.Time(), End: last.Time(), Step: time.Second})
	if part.TimeRange.Start != first || part.TimeRange.End != last || !slices.Equal(part.GPUUtilization, all[1:len(all)-1]) {
		t.Errorf("from %v to %v there are %v of %v", part.TimeRange.Start, part.TimeRange.End, part.GPUUtilization, all)
	}
	var want []compute.Instant // The ends of the steps of two seconds, counted from the epoch, that have a point.
	for _, p := range all[1:] {
		want = append(want, compute.Instant((int64(p.Timestamp)+1999)/2000*2000))
	}
	want = slices.Compact(want)
	var got []compute.Instant
	for _, p := range ask(client.MetricsQuery{Start: first.Time(), Step: 2 * time.Second}).GPUUtilization {
		got = append(got, p.Timestamp)
	}
	if !slices.Equal(got, want) {
		t.Errorf("by two seconds the points are at %v, want %v", got, want)
	}
}
