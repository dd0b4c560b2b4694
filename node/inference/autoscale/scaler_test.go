package autoscale_test

import (
	"fmt"
	"math/bits"
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
		class   int // The class of their delays.
		waiting int
		want    int
	}{
		{"first sight", 0, 100, 3, 0, 1},
		{"as planned", time.Second, 10, 3, 0, 1},
		{"a step in load", time.Second, 35, 3, 0, 4},
		{"more than the most", time.Second, 99, 3, 0, 4},
		{"less", time.Second, 15, 3, 0, 4},
		{"less, within the window", 59 * time.Second, 59 * 5, 3, 0, 4},
		{"less, for the window", 2 * time.Second, 20, 3, 0, 2},
		{"slow", time.Second, 5, 10, 0, 3},
		{"a queue for a moment", time.Second, 20, 3, 6, 3},
		{"no queue", time.Second, 20, 3, 0, 3},
		{"a queue", time.Second, 20, 3, 1, 3},
		{"a queue that lasts", time.Second, 20, 3, 6, 4},
		{"idle after that", time.Second, 5, 3, 0, 4},
		{"idle", time.Minute, 0, 0, 0, 1},
		{"idle for the window", time.Minute, 0, 0, 0, 1},
		{"idle for long", time.Hour, 0, 0, 0, 0},
	} {
		now = now.Add(step.after)
		c.Started += step.started
		c.Delays = append([]int64(nil), c.Delays...)
		c.Delays[step.class] += int64(step.started)
		c.Waiting = step.waiting
		got := s.Replicas(e, e.Service.Replicas, 4, c, now)
		if got != step.want {
			t.Errorf("%s: %d replicas, want %d", step.name, got, step.want)
		}
		e.Service.Replicas = got
	}
}

// TestQueues adds replicas for waiting requests, once those that it added are ready.
func TestQueues(t *testing.T) {
	for _, test := range []struct{ ready, before, waiting, want int }{
		{2, 0, 9, 2}, {2, 9, 0, 2}, {2, 1, 9, 3}, {2, 4, 9, 3}, {2, 9, 5, 4}, {2, 99, 99, 6}, {1, 99, 99, 2},
	} {
		s, now := autoscale.New(time.Hour), time.Unix(1000, 0)
		e := &compute.Execution{
			Service:    &compute.Service{Replicas: 2},
			Deployment: &compute.Deployment{Min: 1, Max: 6, TargetMilliRPS: 1000, TargetP95: time.Second, Window: time.Minute},
		}
		s.Replicas(e, test.ready, 4, autoscale.Counts{Waiting: test.before}, now)
		got := s.Replicas(e, test.ready, 4, autoscale.Counts{Waiting: test.waiting}, now.Add(time.Second))
		if got != test.want {
			t.Errorf("%d ready, %d and then %d wait: %d replicas, want %d", test.ready, test.before, test.waiting, got, test.want)
		}
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
		if got := s.Replicas(e, 3, 4, autoscale.Counts{}, now); got != step.want {
			t.Errorf("after %s more %d replicas, want %d", step.after, got, step.want)
		}
	}
}

// TestTargetDelay adds a replica when more than 5 of 100 answers take longer than the
// target, and not before.
func TestTargetDelay(t *testing.T) {
	spread := func(to float64) (all []float64) { // Evenly from 0, in parts of the target.
		for n := range 100 {
			all = append(all, to*float64(n+1)/100)
		}
		return all
	}
	shares := func(fast, slow int, delay float64) (all []float64) {
		for n := range fast + slow {
			d := 0.2
			if n >= fast {
				d = delay
			}
			all = append(all, d)
		}
		return all
	}
	for name, test := range map[string]struct {
		delays []float64
		slow   bool
	}{
		"just above half": {shares(0, 100, 0.52), false},
		"three quarters":  {shares(0, 100, 0.75), false},
		"nearly":          {shares(0, 100, 0.95), false},
		"a tenth above":   {shares(0, 100, 1.1), true},
		"double":          {shares(0, 100, 2), true},
		"few above":       {shares(97, 3, 3), false},
		"enough above":    {shares(90, 10, 3), true},
		"spread below":    {spread(0.98), false},
		"spread to it":    {spread(1.02), false},
		"spread above":    {spread(1.2), true},
		"one":             {shares(0, 1, 0.6), false},
		"none":            {nil, false},
	} {
		for _, target := range []time.Duration{250, 500, 1000, 2000} {
			t.Run(fmt.Sprintf("%s of %d", name, target), func(t *testing.T) {
				c := autoscale.Counts{Delays: make([]int64, 24)}
				for _, d := range test.delays {
					c.Delays[bits.Len64(uint64(max(int64(d*float64(target))-1, 0)))]++ // As routers count.
				}
				e := &compute.Execution{
					Service: &compute.Service{Replicas: 1},
					Deployment: &compute.Deployment{
						Min: 1, Max: 2, TargetMilliRPS: 1000, TargetP95: target * time.Millisecond, Window: time.Minute,
					},
				}
				s, now := autoscale.New(time.Hour), time.Unix(1000, 0)
				s.Replicas(e, 1, 4, autoscale.Counts{}, now)
				if got := s.Replicas(e, 1, 4, c, now.Add(time.Minute)); (got > 1) != test.slow {
					t.Errorf("%d replicas", got)
				}
			})
		}
	}
}
