package node

import (
	"slices"
	"testing"
	"time"

	"berth/compute"
	"berth/node/router"
)

// TestCountsOfServers adds up what servers have counted. A deployment was idle for as long
// as the server says that has seen the newest request, or that has started last.
func TestCountsOfServers(t *testing.T) {
	id, other := compute.ExecutionID{UUID: compute.UUID{1}}, compute.ExecutionID{UUID: compute.UUID{2}}
	server := func(up time.Duration, loads ...router.Load) serverLoads {
		return newServerLoads(append([]router.Load{{Idle: up}}, loads...))
	}
	asked := router.Load{Deployment: id, Started: 5, UnderWay: 2, Waiting: 1, Delays: []int64{1, 2}, Idle: time.Minute}
	more := router.Load{Deployment: id, Started: 7, UnderWay: 4, Waiting: 3, Delays: []int64{0, 1, 3}, Idle: time.Hour}
	old := newServerLoads([]router.Load{{Deployment: other, Started: 9}}) // An older version.
	for _, test := range []struct {
		name              string
		servers           []serverLoads
		started           uint64
		underWay, waiting int
		delays            []int64
		idle              time.Duration
	}{
		{"asked through both", []serverLoads{server(9*time.Hour, asked), server(9*time.Hour, more)}, 12, 6, 4, []int64{1, 3, 3}, time.Minute},
		{"asked through one", []serverLoads{server(9*time.Hour, more), server(9 * time.Hour)}, 7, 4, 3, []int64{0, 1, 3}, time.Hour},
		{"the other has just started", []serverLoads{server(9*time.Hour, more), server(time.Second)}, 7, 4, 3, []int64{0, 1, 3}, time.Second},
		{"never asked", []serverLoads{server(9 * time.Hour), server(8*time.Hour, router.Load{Deployment: other})}, 0, 0, 0, nil, 8 * time.Hour},
		{"one does not say", []serverLoads{server(9 * time.Hour), old}, 0, 0, 0, nil, 0},
	} {
		c := countsOf(id, test.servers)
		if c.Started != test.started || c.UnderWay != test.underWay || c.Waiting != test.waiting ||
			!slices.Equal(c.Delays, test.delays) || c.Idle != test.idle {
			t.Errorf("%s: %+v", test.name, c)
		}
	}
}
