package node

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/scheduler"
)

// ledger is a state machine with one node of two GPUs, one account with a key,
// and two executions that wait.
type ledger struct {
	t       *testing.T
	machine *fsm.FSM
	index   uint64
	op      byte
	actor   fsm.Actor
	node    compute.NodeID
	key     compute.KeyID
	waits   [2]compute.ExecutionID
}

func newLedger(t *testing.T) *ledger {
	id := func(n byte) compute.UUID { return compute.UUID{n} }
	l := &ledger{
		t: t, machine: fsm.New(), node: compute.NodeID{UUID: id(1)}, key: compute.KeyID{UUID: id(4)},
		actor: fsm.Actor{User: compute.UserID{UUID: id(2)}, Org: compute.OrgID{UUID: id(3)}},
	}
	l.must(fsm.Bootstrap{
		ClusterID: id(9), RootToken: compute.Hash{1}, Signing: compute.SigningKey{ID: "k", Public: []byte{1}, Sealed: []byte{1}},
		Prices:   map[string]compute.Price{"cpu": 15, "t4": 100},
		Settings: fsm.Settings{SignupGrant: 1000 * compute.Credit, Concurrent: 20, Queued: 10, Keys: 5, TimeoutMax: time.Hour},
	})
	l.must(fsm.RegisterNode{First: true, Node: compute.Node{ID: l.node, Name: "n1"}})
	l.must(fsm.SetInventory{Term: 1, Inventory: compute.Inventory{
		Node: l.node, Version: 1, VCPUMilli: 16_000, MemoryMiB: 128 << 10,
		GPUs: []compute.GPU{{ID: "A", Type: "t4", VRAMMiB: 16 << 10}, {ID: "B", Index: 1, Type: "t4", VRAMMiB: 16 << 10}},
	}})
	l.must(fsm.CreateUser{
		Op: l.nextOp(), Actor: fsm.Actor{Root: true}, User: compute.User{ID: l.actor.User, Email: "ada@example.com"},
		Org: compute.Org{ID: l.actor.Org, Slug: "ada"},
	})
	l.must(fsm.CreateKey{Op: l.nextOp(), Actor: l.actor, Key: compute.Key{ID: l.key, Lookup: "l", Hash: compute.Hash{2}, Prefix: "p", Name: "n"}})
	l.actor.Key = l.key
	for i := range l.waits {
		e := compute.Execution{ID: compute.ExecutionID{UUID: id(20 + byte(i))}, Profile: "t4", Timeout: time.Minute, Tags: []string{"red"}}
		l.waits[i] = l.must(fsm.Submit{Op: l.nextOp(), Actor: l.actor, Execution: e}).Execution
	}
	return l
}

func (l *ledger) nextOp() fsm.Op {
	l.op++
	return fsm.Op{ID: compute.OpID{UUID: compute.UUID{100, l.op}}, Org: l.actor.Org}
}

// must applies a command that has to be accepted, as an entry of its own.
func (l *ledger) must(cmd fsm.Command) fsm.Result {
	l.t.Helper()
	l.index++
	var frames [][]byte
	for _, cmd := range []fsm.Command{fsm.Clock{At: 1_800_000_000_000 + compute.Instant(l.index), Term: 1}, cmd} {
		frame, err := fsm.Encode(cmd)
		if err != nil {
			l.t.Fatal(err)
		}
		frames = append(frames, frame)
	}
	r := l.machine.ApplyFrames(l.index, frames...)[1]
	if r.Refusal != nil {
		l.t.Fatalf("%T was refused: %v", cmd, r.Refusal)
	}
	return r
}

func (l *ledger) quota(q compute.Quota) {
	q.Org = l.actor.Org
	l.must(fsm.SetQuota{Op: l.nextOp(), Actor: fsm.Actor{Root: true}, Quota: q})
}

// TestBecameSaysWhyADecisionWasSkipped lets something happen between a plan and
// its entry, for each thing that the state checks, and asks what became of the
// plan's second decision.
func TestBecameSaysWhyADecisionWasSkipped(t *testing.T) {
	tests := []struct {
		name   string
		happen func(l *ledger, plan *compute.Plan)
		want   string
	}{
		{"nothing", func(*ledger, *compute.Plan) {}, ""},
		{
			"its organization", func(l *ledger, _ *compute.Plan) { l.quota(compute.Quota{Concurrent: 1}) },
			"its organization was at its limit of attempts",
		},
		{
			"its key", func(l *ledger, _ *compute.Plan) { l.quota(compute.Quota{Key: l.key, Concurrent: 1}) },
			"its API key was at its limit of attempts",
		},
		{
			"its tag", func(l *ledger, _ *compute.Plan) { l.quota(compute.Quota{Tag: "red", Concurrent: 1}) },
			"one of its tags was at its limit of attempts",
		},
		{
			"GPUs", func(l *ledger, _ *compute.Plan) { l.quota(compute.Quota{MilliGPU: 1500}) },
			"a quota of GPUs had no room for it",
		},
		{"drained", func(l *ledger, _ *compute.Plan) {
			l.must(fsm.DrainNode{Op: l.nextOp(), Actor: fsm.Actor{Root: true}, Node: l.node, Drained: true})
		}, "the node was drained by then"},
		{"down", func(l *ledger, _ *compute.Plan) {
			l.must(fsm.SetNodeState{Term: 1, Node: l.node, State: compute.NodeDown})
		}, "the node was " + compute.NodeDown.String() + " by then"},
		{"no room", func(_ *ledger, plan *compute.Plan) {
			for i := range plan.Assignments {
				plan.Assignments[i].GPUs = []compute.GPUShare{{GPU: "A", Milli: 1000}}
			}
		}, "the node no longer had the room"},
		{"no room, after it had waited for a quota", func(l *ledger, plan *compute.Plan) {
			l.must(fsm.CommitPlan{Term: 1, Plan: compute.Plan{Waiting: []compute.Waiting{
				{Execution: l.waits[1], Reason: compute.ReasonQuotaGPUs},
			}}})
			for i := range plan.Assignments {
				plan.Assignments[i].GPUs = []compute.GPUShare{{GPU: "A", Milli: 1000}}
			}
		}, "the node no longer had the room"},
		{"stopped", func(l *ledger, _ *compute.Plan) {
			l.must(fsm.StopExecution{Op: l.nextOp(), Actor: l.actor, Execution: l.waits[1], Stop: compute.StopHard})
		}, "the execution was " + compute.StatusAborted.String() + " by then"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLedger(t)
			plan := scheduler.Pack(l.machine.View())
			if len(plan.Assignments) != 2 || plan.Assignments[0].Execution != l.waits[0] {
				t.Fatalf("the plan is %+v", plan)
			}
			tt.happen(l, &plan)
			before := l.machine.View()
			l.must(fsm.CommitPlan{Term: 1, ViewIndex: before.Index(), Plan: plan})
			d := compute.Decision{Execution: l.waits[1], Node: l.node}
			applied, why := became(before, l.machine.View(), &d)
			if applied != (tt.want == "") || why != tt.want {
				t.Errorf("applied %v, skipped because %q, want %q", applied, why, tt.want)
			}
		})
	}
}
