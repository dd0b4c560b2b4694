package autoscale_test

import (
	"testing"
	"time"

	"berth/compute"
	"berth/node/inference/autoscale"
)

// TestReplicas follows a deployment of 1 to 4 replicas for 10 requests a second each,
// second by second.
func TestReplicas(t *testing.T) {
	s := autoscale.New(time.Hour)
	e := &compute.Execution{
		Service: &compute.Service{Replicas: 1},
		Deployment: &compute.Deployment{
			Min: 1, Max: 4, TargetMilliRPS: 10_000, TargetP95: 500 * time.Millisecond, Window: time.Minute,
		},
	}
	now, c := time.Unix(1000, 0), autoscale.Counts{Delays: make([]int64, 24)}
	for _, step := range []struct {
		name    string
		after   time.Duration
		started uint64
		class   int // Of their delays.
		want    int
	}{
		{"first sight", 0, 100, 3, 1},
		{"as planned", time.Second, 10, 3, 1},
		{"a step in load", time.Second, 35, 3, 4},
		{"more than the most", time.Second, 99, 3, 4},
		{"less", time.Second, 15, 3, 4},
		{"less, within the window", 59 * time.Second, 59 * 5, 3, 4},
		{"less, for the window", 2 * time.Second, 20, 3, 2},
		{"slow", time.Second, 5, 10, 3},
		{"idle", time.Minute, 0, 0, 3},
		{"idle for the window", time.Minute, 0, 0, 1},
		{"idle for long", time.Hour, 0, 0, 0},
	} {
		now = now.Add(step.after)
		c.Started += step.started
		c.Delays = append([]int64(nil), c.Delays...)
		c.Delays[step.class] += int64(step.started)
		got := s.Replicas(e, e.Service.Replicas, c, now)
		if got != step.want {
			t.Errorf("%s: %d replicas, want %d", step.name, got, step.want)
		}
		e.Service.Replicas = got
	}
}

// TestNewLeader waits a whole window and idle time from when it begins.
func TestNewLeader(t *testing.T) {
	s := autoscale.New(time.Hour)
	e := &compute.Execution{
		Service:    &compute.Service{Replicas: 3},
		Deployment: &compute.Deployment{Min: 1, Max: 4, TargetMilliRPS: 1000, TargetP95: time.Second, Window: time.Minute},
	}
	now := time.Unix(1000, 0)
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 3}, {time.Second, 3}, {59 * time.Second, 3}, {time.Second, 1}} {
		now = now.Add(step.after)
		if got := s.Replicas(e, 3, autoscale.Counts{}, now); got != step.want {
			t.Errorf("after %s more %d replicas, want %d", step.after, got, step.want)
		}
	}
}
