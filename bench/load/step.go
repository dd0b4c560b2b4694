package load

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"berth/api/wire"
	"berth/compute"
	"berth/loop"
)

// The measurement of a step in load.
const (
	stepModel  = "bench/echo"
	stepRate   = 10 // Requests a second that one replica is meant to answer.
	stepMost   = 4  // Replicas.
	stepSteady = 5 * time.Second
)

// Step has the times of requests while their rate rises at once, from the target rate of
// one replica to that of four.
type Step struct {
	Replicas int     `json:"replicas"`
	Requests int     `json:"requests"`
	Failed   int64   `json:"failed"`
	FirstMS  float64 `json:"first_replica_ms"` // From the request for a deployment until its replica was ready.
	ScaledMS float64 `json:"scaled_ms"`        // From the step until all replicas were ready.
	Before   Spread  `json:"before"`           // Whole answers: with one replica,
	During   Spread  `json:"during"`           // from the step on until there were four,
	After    Spread  `json:"after"`            // and with four.
}

// stepping asks a deployment at a rate.
type stepping struct {
	*inferring

	model  string
	sent   int
	failed atomic.Int64
	group  sync.WaitGroup
}

// step asks a deployment of one replica four times as much as it is meant to answer.
func (m *inferring) step(ctx context.Context) (out Step, err error) {
	begun := time.Now() //nolint:forbidigo // Real processes have real time.
	id, _, _, err := m.deployAs(ctx, wire.DeploymentCreate{
		Model: stepModel, Engine: m.cfg.Engine, GPUType: "cpu", GPUCount: 1,
		TargetRPS: stepRate, TargetP95: 3_600_000, Window: 3600, MinReplicas: 1, MaxReplicas: stepMost,
	}, 1)
	if err != nil {
		return out, err
	}
	out.Replicas = stepMost
	out.FirstMS = float64(time.Since(begun).Microseconds()) / 1000
	s := &stepping{inferring: m, model: id}
	parsed, err := compute.ParseExecutionID(id)
	if err != nil {
		return out, err
	}
	out.Before = s.during(ctx, stepRate, func() { loop.Sleep(ctx, stepSteady) })
	begun = time.Now() //nolint:forbidigo // Real processes have real time.
	out.During = s.during(ctx, stepMost*stepRate, func() {
		_, err = m.ready(ctx, parsed, stepMost)
		out.ScaledMS = float64(time.Since(begun).Microseconds()) / 1000
	})
	if err != nil {
		return out, err
	}
	out.After = s.during(ctx, stepMost*stepRate, func() { loop.Sleep(ctx, stepSteady) })
	out.Requests, out.Failed = s.sent, s.failed.Load()
	return out, m.remove(ctx, id)
}

// during asks so many times a second until lasts returns, and returns how long the answers
// took. Answers that are late hold no request up.
func (s *stepping) during(ctx context.Context, rate int, lasts func()) Spread {
	ctx, stop := context.WithCancel(ctx)
	var asking sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	asking.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			at := target{s.Nodes[s.sent%len(s.Nodes)].URL + "/openai/v1", s.model, s.APIKey}
			s.sent++
			s.group.Go(func() {
				begun := time.Now() //nolint:forbidigo // Real processes have real time.
				if _, err := s.ask(context.WithoutCancel(ctx), at, says("hello")); err != nil {
					s.failed.Add(1)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(begun))
			})
		}
	})
	lasts()
	stop()
	asking.Wait()
	s.group.Wait()
	return spreadOf(took)
}
