package router_test

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"berth/compute"
	"berth/node/inference/autoscale"
	"berth/node/router"
)

// TestLoads counts requests and their delays by deployment, and says how long each has had
// none.
func TestLoads(t *testing.T) {
	now := time.Unix(1000, 0)
	clock := func() time.Time { return now }
	r := router.New(compute.NodeID{}, func(context.Context, router.Replica) (net.Conn, error) { panic("not dialled") }, clock)
	one, two := compute.ExecutionID{UUID: compute.UUID{1}}, compute.ExecutionID{UUID: compute.UUID{2}}
	now = now.Add(time.Hour)
	answered, done := r.Count(one, clock)
	now = now.Add(300 * time.Millisecond)
	answered()
	now = now.Add(time.Minute)
	done()
	done() // Only the first one counts.
	_, _ = r.Count(two, clock)
	now = now.Add(time.Minute)

	loads := make(map[compute.ExecutionID]router.Load)
	for _, l := range r.Loads() {
		loads[l.Deployment] = l
	}
	first, second, others := loads[one], loads[two], loads[compute.ExecutionID{}]
	delays := make([]int64, autoscale.DelayClass(300*time.Millisecond)+1)
	delays[len(delays)-1] = 1
	if first.Started != 1 || first.UnderWay != 0 || first.Idle != time.Minute || !slices.Equal(first.Delays, delays) {
		t.Errorf("of a request that has ended: %+v", first)
	}
	if second.Started != 1 || second.UnderWay != 1 || second.Idle != 0 || len(second.Delays) > 0 {
		t.Errorf("of one that is under way: %+v", second)
	}
	if want := time.Hour + 2*time.Minute + 300*time.Millisecond; len(loads) != 3 || others.Idle != want {
		t.Errorf("of all others: %+v, want %s", others, want)
	}
}

// TestLoadsAreForgotten drops the counts of deployments without requests when there are too
// many: nothing is known of those from then on.
func TestLoadsAreForgotten(t *testing.T) {
	now := time.Unix(1000, 0)
	clock := func() time.Time { return now }
	r := router.New(compute.NodeID{}, nil, clock)
	const most = 10_000
	for n := range most {
		_, done := r.Count(compute.ExecutionID{UUID: compute.UUID{byte(n >> 8), byte(n), 1}}, clock)
		if n > 0 {
			done()
		}
	}
	now = now.Add(time.Hour)
	_, _ = r.Count(compute.ExecutionID{UUID: compute.UUID{2}}, clock)
	now = now.Add(time.Minute)
	loads := r.Loads()
	if len(loads) != 3 || !loads[0].Deployment.IsZero() || loads[0].Idle != time.Minute {
		t.Errorf("%d deployments are known, all others idle for %s", len(loads)-1, loads[0].Idle)
	}
}
