package scheduler_test

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/scheduler"
	"berth/scheduler/selection"
)

// The scheduler reads the state's views.
var _ scheduler.View = (*fsm.View)(nil)

// cluster is a real state machine with nodes that carry out plans at once. When the test ends, every invariant must hold.
type cluster struct {
	tb      testing.TB
	machine *fsm.FSM
	index   uint64
	last    uint64 // The identifier made last.
	now     compute.Instant
	actor   command.Actor
}

// newCluster returns a cluster whose nodes have GPUs of these types, and one
// user.
func newCluster(tb testing.TB, nodes ...[]string) *cluster {
	c := &cluster{tb: tb, machine: fsm.New(), now: 1_800_000_000_000}
	tb.Cleanup(func() {
		if err := c.machine.View().Check(); err != nil {
			tb.Errorf("the state breaks an invariant: %v", err)
		}
	})
	c.must(command.Bootstrap{
		ClusterID: c.uuid(), RootToken: compute.Hash{1}, Signing: compute.SigningKey{ID: "k", Public: []byte{1}, Sealed: []byte{1}},
		Prices:   map[string]compute.Price{"cpu": 15, "t4": 100, "l40s": 400, "a100": 550, "h100": 900},
		Settings: command.Settings{SignupGrant: 1000 * compute.Credit, Concurrent: 20, Queued: 1000, Keys: 5, TimeoutMax: time.Hour, SelectionMax: 16},
	})
	for i, types := range nodes {
		c.addNode(i, types)
	}
	c.actor = command.Actor{User: compute.UserID{UUID: c.uuid()}, Org: compute.OrgID{UUID: c.uuid()}}
	c.must(command.CreateUser{
		Op: command.Op{ID: compute.OpID{UUID: c.uuid()}}, Actor: command.Actor{Root: true},
		User: compute.User{ID: c.actor.User, Email: "ada@example.com"}, Org: compute.Org{ID: c.actor.Org, Slug: "ada"},
	})
	return c
}

// addNode joins a node with 8 vCPUs and 64 GiB per GPU.
func (c *cluster) addNode(i int, types []string) {
	name := "n" + string(rune('1'+i))
	node := compute.Node{ID: compute.NodeID{UUID: c.uuid()}, Name: name, Format: format.Newest}
	join := command.RegisterNode{Node: node, First: i == 0}
	if i > 0 {
		join.TokenID, join.TokenHash = name, compute.Hash{byte(i)}
		c.must(command.CreateJoinToken{Actor: command.Actor{Root: true}, Token: compute.JoinToken{
			ID: name, Hash: join.TokenHash, Uses: 1, ExpiresAt: c.now.Add(time.Hour),
		}})
	}
	c.must(join)
	inventory := compute.Inventory{
		Node: node.ID, Version: 1, VCPUMilli: int64(len(types)) * 8000, MemoryMiB: int64(len(types)) * 64 << 10,
	}
	for n, gpuType := range types {
		inventory.GPUs = append(inventory.GPUs, compute.GPU{
			ID: compute.GPUID("SIM-" + name + "-" + string(rune('0'+n))), Index: n, Type: gpuType, VRAMMiB: 16 << 10, Simulated: true,
		})
	}
	c.must(command.SetInventory{Term: 1, Inventory: inventory})
}

func (c *cluster) uuid() (u compute.UUID) {
	c.last++
	u[0] = 1
	binary.BigEndian.PutUint64(u[8:], c.last)
	return u
}

// must applies a command that has to be accepted.
func (c *cluster) must(cmd command.Command) command.Result {
	c.tb.Helper()
	r := c.apply(cmd)
	if r.Refusal != nil {
		c.tb.Fatalf("%T was refused: %v", cmd, r.Refusal)
	}
	return r
}

func (c *cluster) apply(cmd command.Command) command.Result {
	c.tb.Helper()
	var frames [][]byte
	c.now++
	for _, cmd := range []command.Command{command.Clock{At: c.now, Term: 1}, cmd} {
		frame, err := command.Encode(cmd)
		if err != nil {
			c.tb.Fatalf("encode %T: %v", cmd, err)
		}
		frames = append(frames, frame)
	}
	c.index++
	return c.machine.ApplyFrames(c.index, frames...)[1]
}

// submit submits code and returns its identifier.
func (c *cluster) submit(profile string, change ...func(*compute.Execution)) compute.ExecutionID {
	c.tb.Helper()
	e := compute.Execution{ID: compute.ExecutionID{UUID: c.uuid()}, Profile: profile, Timeout: time.Minute}
	for _, f := range change {
		f(&e)
	}
	return c.must(command.Submit{
		Op: command.Op{ID: compute.OpID{UUID: c.uuid()}, Org: c.actor.Org}, Actor: c.actor, Execution: e,
	}).Execution
}

func (c *cluster) get(id compute.ExecutionID) *compute.Execution {
	c.tb.Helper()
	e, ok := c.machine.View().AnyExecution(id)
	if !ok {
		c.tb.Fatalf("no execution %s", id)
	}
	return e
}

// pack packs and commits until nothing changes. The state must agree with
// every assignment.
func (c *cluster) pack() {
	c.tb.Helper()
	for range 1000 {
		v := c.machine.View()
		plan := scheduler.Pack(v)
		if plan.Empty() {
			return
		}
		r := c.must(command.CommitPlan{Term: 1, ViewIndex: v.Index(), Plan: plan})
		if r.Count != len(plan.Assignments) {
			c.tb.Fatalf("the state placed %d of %d: %+v", r.Count, len(plan.Assignments), plan)
		}
	}
	c.tb.Fatal("no end of plans")
}

// finish lets an execution that was placed complete after d.
func (c *cluster) finish(id compute.ExecutionID, d time.Duration) {
	c.tb.Helper()
	attempts := c.machine.View().Attempts(id)
	a := attempts[len(attempts)-1]
	start := c.now
	c.must(command.StartAttempt{Node: a.Node, Start: compute.AttemptStart{Execution: id, Epoch: a.Epoch, ExecletAt: start, StartedAt: start}})
	c.now = c.now.Add(d)
	c.must(command.FinishAttempt{Node: a.Node, Outcome: compute.Outcome{
		Execution: id, Epoch: a.Epoch, Status: compute.StatusCompleted, Ran: true, Duration: d,
		ExecletAt: start, StartedAt: start, EndedAt: c.now,
	}})
}

// CommitPlan makes a cluster the loop's Committer.
func (c *cluster) CommitPlan(_ context.Context, term, viewIndex uint64, plan compute.Plan) (uint64, error) {
	c.must(command.CommitPlan{Term: term, ViewIndex: viewIndex, Plan: plan})
	return c.index, nil
}

// TakeSelection is refused as an error, as the adaptor in node does.
func (c *cluster) TakeSelection(_ context.Context, term uint64, parent *compute.Execution, profiles []string, detail string) (uint64, error) {
	cmd := command.TakeSelection{Term: term, Parent: parent.ID, Detail: detail}
	for _, p := range profiles {
		cmd.Children = append(cmd.Children, command.Child{ID: compute.ExecutionID{UUID: c.uuid()}, Profile: p})
	}
	if r := c.apply(cmd); r.Refusal != nil {
		return 0, r.Refusal
	}
	return c.index, nil
}

// placed returns the executions that hold a place.
func (c *cluster) placed() []compute.ExecutionID {
	var out []compute.ExecutionID
	for e := range c.machine.View().Live(c.actor.Org) {
		if e.Status == compute.StatusStarting {
			out = append(out, e.ID)
		}
	}
	return out
}

func TestStoryOfAFullCluster(t *testing.T) {
	c := newCluster(t, []string{"h100", "h100"}, []string{"t4", "t4"})
	var all []compute.ExecutionID
	for _, profile := range []string{"h100.2x", "h100", "t4", "t4", "t4.500m", "t4.500m", "cpu.2x"} {
		all = append(all, c.submit(profile))
	}
	c.pack()
	waits := map[compute.ExecutionID]compute.Reason{}
	for e := range c.machine.View().Queue() {
		waits[e.ID] = e.Reason
	}
	if len(waits) != 4 || waits[all[1]] != compute.ReasonGPUsBusy || waits[all[6]] != compute.ReasonResourcesBusy {
		t.Errorf("waiting: %v", waits)
	}
	for range all {
		for _, id := range c.placed() {
			c.finish(id, time.Second)
		}
		c.pack()
	}
	for i, id := range all {
		if e := c.get(id); e.Status != compute.StatusCompleted {
			t.Errorf("execution %d ended as %v (%v)", i, e.Status, e.Reason)
		}
	}
}

func TestStoryOfAnyHistory(t *testing.T) {
	profiles := []string{"cpu", "cpu.8x", "h100", "h100.2x", "l40s", "l40s.4x", "l40s.300m", "a100.750m", "a100.2x", "t4.1m", "t4.4x"}
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 7))
		c := newCluster(t, []string{"h100", "h100", "l40s", "l40s", "l40s", "l40s"}, []string{"a100", "a100", "a100", "a100"}, []string{"t4", "t4", "t4", "t4"})
		for range 30 {
			for range rng.IntN(6) {
				c.submit(profiles[rng.IntN(len(profiles))], func(e *compute.Execution) { e.Priority = rng.IntN(3) })
			}
			c.pack()
			for _, id := range c.placed() {
				if rng.IntN(2) == 0 {
					c.finish(id, time.Duration(rng.IntN(2000))*time.Millisecond)
				}
			}
		}
		for range 200 {
			c.pack()
			if c.machine.View().QueueLen() == 0 {
				break
			}
			for _, id := range c.placed() {
				c.finish(id, time.Second)
			}
		}
		if n := c.machine.View().QueueLen(); n != 0 {
			t.Errorf("seed %d: %d executions wait for ever", seed, n)
		}
	}
}

// TestStoryOfASelection is a GPU selection from its queue message to its
// verdict, with the loop as the leader runs it.
func TestStoryOfASelection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, []string{"h100", "h100", "l40s"}, []string{"a100"}, []string{"t4"})
		loop := scheduler.New(scheduler.Config{
			Views: func() scheduler.View { return c.machine.View() },
			Changed: func(ctx context.Context, after uint64) error {
				_, err := c.machine.Wait(ctx, after+1)
				return err
			},
			Committer: c, Now: time.Now,
			Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		})
		parent := c.submit("", func(e *compute.Execution) {
			e.Kind, e.Selection = compute.KindSelection, &compute.Selection{GPUTypes: []string{"h100", "t4", "a100"}}
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- loop.Run(ctx, 1) }()
		elapse(5 * time.Second)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the loop ended with %v", err)
		}

		children := c.machine.View().Children(parent)
		if len(children) != 3 {
			t.Fatalf("%d sub-executions, want one per type asked for", len(children))
		}
		took := map[string]time.Duration{"gpu.a100": 12 * time.Second, "gpu.h100": 6100 * time.Millisecond, "gpu.t4": 50 * time.Second}
		for _, e := range children {
			if e.Status != compute.StatusStarting {
				t.Fatalf("%s is %v (%v), want it placed", e.Profile, e.Status, e.Reason)
			}
			c.finish(e.ID, took[e.Profile])
		}
		if e := c.get(parent); e.Status != compute.StatusCompleted {
			t.Errorf("the parent is %v (%v)", e.Status, e.Reason)
		}

		var trees []compute.Candidate
		for _, e := range c.machine.View().Children(parent) {
			trees = append(trees, compute.Candidate{
				Profile: e.Profile,
				Runs:    []compute.CandidateRun{{Status: e.Status, Duration: e.Duration, Credits: e.Billed}},
			})
		}
		fastest := trees[selection.Judge(compute.ObjectiveFastest, trees).Best].Profile
		cheapest := trees[selection.Judge(compute.ObjectiveCheapest, trees).Best].Profile
		if fastest != "gpu.h100" || cheapest != "gpu.t4" {
			t.Errorf("fastest %s, cheapest %s, want gpu.h100 and gpu.t4", fastest, cheapest)
		}
		again, err := c.TakeSelection(t.Context(), 1, c.get(parent), []string{"gpu.t4"}, "")
		if compute.CodeOf(err) != compute.CodeConflict || !slices.Equal(c.get(parent).Selection.Children, []compute.ExecutionID{children[0].ID, children[1].ID, children[2].ID}) {
			t.Errorf("the queue message was taken twice: %d, %v", again, err)
		}
	})
}
