package executor_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/compute"
	"berth/node/executor"
)

// placeReplica places a replica and waits until it is ready.
func (n *node) placeReplica(t *testing.T) compute.ExecutionID {
	t.Helper()
	code := strings.NewReplacer("FAMILY", "socket.AF_INET", "HOST", `"127.0.0.1"`).Replace(echo)
	w := n.serving(code, compute.Serving{Port: 1024, ReadinessTimeout: time.Minute})
	w.Execution.ReadyAt = 1
	id := n.place(w)
	await(t, "the code to be ready", func() bool { return n.isReady(id) })
	return id
}

// stopReplica has the state say that a replica is to stop.
func (n *node) stopReplica(id compute.ExecutionID, stop compute.Stop, why compute.Reason) {
	n.update(func() {
		stopped := *n.work[id].Execution
		stopped.Stop, stopped.Reason = stop, why
		n.work[id] = compute.Work{Attempt: n.work[id].Attempt, Execution: &stopped}
	})
}

// TestDrain stops a replica once it has no requests, after a limit, at once when its
// credits are over or it is aborted, and again by the next executor.
func TestDrain(t *testing.T) {
	const (
		wait  = "it stops once its requests under way (2) have ended"
		limit = "requests are still under way a" // After the limit, or at the deadline.
	)
	for name, test := range map[string]struct {
		limit   time.Duration
		stop    compute.Stop
		reason  compute.Reason
		restart bool
		ends    bool // The requests end.
		says    string
		over    bool // It says that it is stopped all the same.

		deadline bool // That of the drain of the node passes while it waits.
	}{
		"requests end": {limit: time.Hour, stop: compute.StopGraceful, ends: true, says: wait},
		"restart":      {limit: time.Hour, stop: compute.StopGraceful, ends: true, restart: true, says: wait},
		"limit":        {limit: time.Second, stop: compute.StopGraceful, says: wait, over: true},
		"parent":       {limit: time.Hour, stop: compute.StopGraceful, reason: compute.ReasonParentEnded, ends: true, says: wait},
		"lost contact": {limit: time.Hour, stop: compute.StopGraceful, reason: compute.ReasonNodeUnreached, ends: true, says: wait},
		"deadline":     {limit: time.Hour, stop: compute.StopGraceful, deadline: true, says: wait, over: true},
		"credits":      {limit: time.Hour, stop: compute.StopGraceful, reason: compute.ReasonCredits},
		"drained":      {limit: time.Hour, stop: compute.StopGraceful, reason: compute.ReasonDrained},
		"abort":        {limit: time.Hour, stop: compute.StopHard},
		"none":         {stop: compute.StopGraceful},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var underWay, asked atomic.Int32
			underWay.Store(2)
			n := newNode(t, func(c *executor.Config) {
				c.DrainWait = test.limit
				c.Requests = func(context.Context, compute.ExecutionID) executor.UnderWay {
					return executor.UnderWay{Count: int(underWay.Load()), Known: true, Over: asked.Add(1) > 1 && test.deadline}
				}
			})
			id := n.placeReplica(t)
			n.stopReplica(id, test.stop, test.reason)
			if test.ends {
				await(t, "the wait to be noted", func() bool { return n.says(id, wait) })
			}
			if test.restart {
				n.stop()
				before := asked.Load()
				n.run()
				await(t, "the next executor to ask for requests", func() bool { return asked.Load() > before })
			}
			if test.ends {
				if got := n.mustTalk(id, "a"); got != "echo a 1024" {
					t.Errorf("while it drains it answers %q", got)
				}
				underWay.Store(0)
			}
			n.end(id)
			if out := n.output(id); !strings.Contains(out, test.says) || strings.Contains(out, limit) != test.over {
				t.Errorf("its output is %q", out)
			}
			if test.says == "" && asked.Load() > 0 {
				t.Error("its requests were asked for")
			}
		})
	}
}

// TestDrainWithoutAnswers stops a replica although a node never says how many requests
// it has.
func TestDrainWithoutAnswers(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(c *executor.Config) {
		c.DrainWait = time.Hour
		c.Requests = func(context.Context, compute.ExecutionID) executor.UnderWay { return executor.UnderWay{} }
	})
	id := n.placeReplica(t)
	n.stopReplica(id, compute.StopGraceful, compute.ReasonNone)
	n.end(id)
}
