package statetest

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// State is a state machine with one node of two GPUs, one account with a key,
// and two executions that wait.
type State struct {
	Machine *fsm.FSM
	Index   uint64 // Index of the last entry.
	Actor   command.Actor
	Node    compute.NodeID
	Key     compute.KeyID
	Waiting [2]compute.ExecutionID

	t  testing.TB
	op byte
}

// New returns a state with one node of two GPUs, an account with a key and two
// queued executions.
func New(t testing.TB) *State {
	t.Helper()
	id := func(n byte) compute.UUID { return compute.UUID{n} }
	s := &State{
		t: t, Machine: fsm.New(), Node: compute.NodeID{UUID: id(1)}, Key: compute.KeyID{UUID: id(4)},
		Actor: command.Actor{User: compute.UserID{UUID: id(2)}, Org: compute.OrgID{UUID: id(3)}},
	}
	s.Must(command.Bootstrap{
		ClusterID: id(9), RootToken: compute.Hash{1},
		Signing: compute.SigningKey{ID: "k", Public: []byte{1}, Sealed: []byte{1}},
		Prices:  map[string]compute.Price{"cpu": 15, "t4": 100},
		Settings: command.Settings{
			SignupGrant: 1000 * compute.Credit, Concurrent: 20, Queued: 10, Keys: 5, TimeoutMax: time.Hour,
		},
	})
	s.Must(command.RegisterNode{First: true, Node: compute.Node{ID: s.Node, Name: "n1"}})
	s.Must(command.SetInventory{Term: 1, Inventory: compute.Inventory{
		Node: s.Node, Version: 1, VCPUMilli: 16_000, MemoryMiB: 128 << 10,
		GPUs: []compute.GPU{{ID: "A", Type: "t4", VRAMMiB: 16 << 10}, {ID: "B", Index: 1, Type: "t4", VRAMMiB: 16 << 10}},
	}})
	s.Must(command.CreateUser{
		Op: s.NextOp(), Actor: command.Actor{Root: true}, User: compute.User{ID: s.Actor.User, Email: "ada@example.com"},
		Org: compute.Org{ID: s.Actor.Org, Slug: "ada"},
	})
	s.Must(command.CreateKey{
		Op: s.NextOp(), Actor: s.Actor,
		Key: compute.Key{ID: s.Key, Lookup: "l", Hash: compute.Hash{2}, Prefix: "p", Name: "n"},
	})
	s.Actor.Key = s.Key
	for i := range s.Waiting {
		e := compute.Execution{
			ID: compute.ExecutionID{UUID: id(20 + byte(i))}, Profile: "t4", Timeout: time.Minute, Tags: []string{"red"},
		}
		s.Waiting[i] = s.Must(command.Submit{Op: s.NextOp(), Actor: s.Actor, Execution: e}).Execution
	}
	return s
}

// NextOp returns the op of one more request.
func (s *State) NextOp() command.Op {
	s.op++
	return command.Op{ID: compute.OpID{UUID: compute.UUID{100, s.op}}, Org: s.Actor.Org}
}

// Must applies a command that has to be accepted, as an entry of its own.
func (s *State) Must(cmd command.Command) command.Result {
	s.t.Helper()
	s.Index++
	var frames [][]byte
	for _, cmd := range []command.Command{command.Clock{At: 1_800_000_000_000 + compute.Instant(s.Index), Term: 1}, cmd} {
		frame, err := command.Encode(cmd)
		if err != nil {
			s.t.Fatal(err)
		}
		frames = append(frames, frame)
	}
	r := s.Machine.ApplyFrames(s.Index, frames...)[1]
	if r.Refusal != nil {
		s.t.Fatalf("%T was refused: %v", cmd, r.Refusal)
	}
	return r
}

// Quota sets a quota of the account.
func (s *State) Quota(q compute.Quota) {
	q.Org = s.Actor.Org
	s.Must(command.SetQuota{Op: s.NextOp(), Actor: command.Actor{Root: true}, Quota: q})
}
