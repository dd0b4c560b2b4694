package autoscale_test

import (
	"fmt"
	"slices"
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
	now, c := time.Unix(1000, 0), autoscale.Counts{Delays: make([]int64, 100)}
	for _, step := range []struct {
		name    string
		after   time.Duration
		started uint64
		delay   time.Duration
		waiting int
		want    int
	}{
		{"first sight", 0, 100, 8 * time.Millisecond, 0, 1},
		{"as planned", time.Second, 10, 8 * time.Millisecond, 0, 1},
		{"a step in load", time.Second, 35, 8 * time.Millisecond, 0, 4},
		{"more than the most", time.Second, 99, 8 * time.Millisecond, 0, 4},
		{"less", time.Second, 15, 8 * time.Millisecond, 0, 4},
		{"less, within the window", 59 * time.Second, 59 * 5, 8 * time.Millisecond, 0, 4},
		{"less, for the window", 2 * time.Second, 20, 8 * time.Millisecond, 0, 2},
		{"slow", time.Second, 5, time.Second, 0, 3},
		{"a queue for a moment", time.Second, 20, 8 * time.Millisecond, 6, 3},
		{"no queue", time.Second, 20, 8 * time.Millisecond, 0, 3},
		{"a queue", time.Second, 20, 8 * time.Millisecond, 1, 3},
		{"a queue that lasts", time.Second, 20, 8 * time.Millisecond, 6, 4},
		{"idle after that", time.Second, 5, 8 * time.Millisecond, 0, 4},
		{"idle", time.Minute, 0, 0, 0, 1},
		{"idle for the window", time.Minute, 0, 0, 0, 1},
		{"idle for long", time.Hour, 0, 0, 0, 0},
	} {
		now = now.Add(step.after)
		c.Started += step.started
		c.Delays = append([]int64(nil), c.Delays...)
		c.Delays[autoscale.DelayClass(step.delay)] += int64(step.started)
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

// TestSlowStarts keeps a replica that was added until it is ready, for longer than the window,
// while answers are slow or requests wait. It goes a window after neither is so any more.
func TestSlowStarts(t *testing.T) {
	for name, test := range map[string]struct {
		delay   time.Duration
		waiting int
	}{"slow": {2 * time.Second, 0}, "a queue": {time.Millisecond, 3}} {
		s, now := autoscale.New(time.Hour), time.Unix(1000, 0)
		e := &compute.Execution{
			Service:    &compute.Service{Replicas: 1},
			Deployment: &compute.Deployment{Min: 1, Max: 4, TargetMilliRPS: 1000_000, TargetP95: time.Second, Window: time.Minute},
		}
		c := autoscale.Counts{Delays: make([]int64, 200), Waiting: test.waiting}
		for step := range 40 { // Each takes 10 seconds.
			pressed := step < 30
			if c.Delays = slices.Clone(c.Delays); pressed {
				c.Started++
				c.Delays[autoscale.DelayClass(test.delay)]++
			} else {
				c.Waiting = 0
			}
			want := 2
			if step == 0 || step >= 36 {
				want = 1
			}
			if e.Service.Replicas = s.Replicas(e, 1, 4, c, now); e.Service.Replicas != want {
				t.Errorf("%s, step %d: %d replicas, want %d", name, step, e.Service.Replicas, want)
			}
			now = now.Add(10 * time.Second)
		}
	}
}

// TestNewLeader waits a whole window from when it begins.
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

// TestIdleForEarlierLeaders pauses a deployment that had no requests before this leader
// began, once a tenth of the idle time has passed again.
func TestIdleForEarlierLeaders(t *testing.T) {
	for _, test := range []struct{ idle, pause, paused time.Duration }{
		{0, time.Hour, time.Hour},
		{10 * time.Minute, time.Hour, 50 * time.Minute},
		{55 * time.Minute, time.Hour, 6 * time.Minute},
		{24 * time.Hour, time.Hour, 6 * time.Minute},
		{24 * time.Hour, 0, 0},
	} {
		s, now := autoscale.New(test.pause), time.Unix(100_000, 0)
		e := &compute.Execution{
			Service:    &compute.Service{Replicas: 1},
			Deployment: &compute.Deployment{Min: 1, Max: 4, TargetMilliRPS: 1000, TargetP95: time.Second, Window: time.Minute},
		}
		var paused time.Duration
		for after := time.Duration(0); after <= 2*time.Hour && paused == 0; after += time.Minute {
			c := autoscale.Counts{Idle: test.idle + after}
			if s.Replicas(e, 1, 4, c, now.Add(after)) == 0 {
				paused = after
			}
		}
		if paused != test.paused {
			t.Errorf("idle for %s before, of %s: paused after %s, want %s", test.idle, test.pause, paused, test.paused)
		}
	}
}

// TestDelayClass puts delays into classes of which each is an eighth at most of its lower
// bound wide.
func TestDelayClass(t *testing.T) {
	last := autoscale.DelayClass(1 << 62)
	for class, low := 0, time.Duration(0); class < last; class++ {
		high := low // The first delay that is not in the class is just above this one.
		for step := time.Hour * 24; step > 0; step /= 2 {
			for autoscale.DelayClass(high+step) <= class {
				high += step
			}
		}
		if got := autoscale.DelayClass(low + 1); got != class {
			t.Fatalf("just above %s is of class %d, want %d", low, got, class)
		}
		if width := high - low; width < time.Millisecond || width > time.Millisecond && width > low/8 {
			t.Errorf("class %d is from %s to %s", class, low, high)
		}
		low = high
	}
	for delay, want := range map[time.Duration]int{
		-1: 0, 0: 0, 1: 0, time.Millisecond: 0, time.Millisecond + 1: 1, 16 * time.Millisecond: 15, 17 * time.Millisecond: 16,
		(1 << 23) * time.Millisecond: last, 1 << 62: last,
	} {
		if got := autoscale.DelayClass(delay); got != want {
			t.Errorf("%s is of class %d, want %d", delay, got, want)
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
		"nearly":          {shares(0, 100, 0.88), false},
		"a bit above":     {shares(0, 100, 1.13), true},
		"double":          {shares(0, 100, 2), true},
		"few above":       {shares(97, 3, 3), false},
		"enough above":    {shares(90, 10, 3), true},
		"spread below":    {spread(0.98), false},
		"spread to it":    {spread(1.02), false},
		"spread above":    {spread(1.2), true},
		"one":             {shares(0, 1, 0.6), false},
		"none":            {nil, false},
	} {
		for _, target := range []int{40, 250, 300, 500, 600, 700, 900, 1000, 1200, 1500, 2000, 5000} {
			t.Run(fmt.Sprintf("%s of %d", name, target), func(t *testing.T) {
				c := autoscale.Counts{Delays: make([]int64, 200)}
				for _, d := range test.delays {
					c.Delays[autoscale.DelayClass(time.Duration(d*float64(target)*float64(time.Millisecond)))]++
				}
				e := &compute.Execution{
					Service: &compute.Service{Replicas: 1},
					Deployment: &compute.Deployment{
						Min: 1, Max: 2, TargetMilliRPS: 1000, TargetP95: time.Duration(target) * time.Millisecond, Window: time.Minute,
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
