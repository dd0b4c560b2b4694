package cluster_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/hashicorp/raft"

	"berth/cluster"
)

// TestRejoiningNodeDoesNotRaiseTheTerm cuts a follower off, again and again.
// Without pre-vote it would raise its term each time it asks for votes in
// vain, and depose the leader each time it comes back.
func TestRejoiningNodeDoesNotRaiseTheTerm(t *testing.T) {
	f := mustFleet(t, 3, func(c *cluster.Config) { c.Profile = cluster.ProfileDefault })
	leader := f.leader()
	if _, ok := leader.Transport().(raft.WithPreVote); !ok {
		t.Fatalf("%T hides pre-vote from raft", leader.Transport())
	}
	victim := f.follower(leader)
	for round := range 20 {
		term := leader.Term()
		f.wire.isolate(victim.cfg.Name, true)
		// It has given up on the leader, so it asks for votes from now on.
		eventually(t, "the node has no leader", func() bool {
			_, known := victim.Leader()
			return !known
		})
		_, index := leader.mustPropose(t, toyCommand{Op: fmt.Sprint("cut", round), Key: "k", Value: int64(round)})
		if victim.Term() != term {
			t.Errorf("round %d: cut off, the node went from term %d to %d", round, term, victim.Term())
		}
		f.wire.isolate(victim.cfg.Name, false)
		eventually(t, "the node is back", func() bool {
			_, known := victim.Leader()
			return known && victim.CommitIndex() >= index
		})
		for _, p := range f.peers {
			if p.Term() != term {
				t.Errorf("round %d: %s is in term %d, it was %d", round, p.cfg.Name, p.Term(), term)
			}
		}
	}
	if got := victim.mustRead(t, "k"); got != 19 {
		t.Errorf("the node reads %d", got)
	}
}

func TestPartitionedLeaderNeitherWritesNorReads(t *testing.T) {
	f := mustFleet(t, 3, nil)
	old := f.leader()
	old.mustPropose(t, toyCommand{Op: "before", Key: "k", Value: 1})
	f.wire.isolate(old.cfg.Name, true)
	other := f.follower(old)
	other.mustPropose(t, toyCommand{Op: "after", Key: "k", Value: 2})
	if index, err := old.ReadIndex(t.Context()); err == nil {
		t.Errorf("the old leader answers a read with index %d", index)
	}
	f.wire.isolate(old.cfg.Name, false)
	if got := old.mustRead(t, "k"); got != 2 {
		t.Errorf("healed, the old leader reads %d", got)
	}
}

func TestSilentClientsDisturbNobody(t *testing.T) {
	f := mustFleet(t, 2, nil)
	for range 100 {
		conn, err := net.Dial("tcp", f.peers[0].RPCAddress())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	term := f.peers[0].Term()
	f.mustAdd() // Needs connections of every kind.
	f.awaitVoters(3)
	if got := f.peers[0].Term(); got != term {
		t.Errorf("term %d became %d", term, got)
	}
}
