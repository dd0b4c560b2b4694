package cluster_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/hashicorp/raft"

	"berth/cluster"
	"berth/testsize"
)

// TestRejoiningNodeDoesNotRaiseTheTerm repeatedly cuts a follower off. Without
// pre-vote it would raise its term with each failed request for votes, and
// depose the leader whenever it reconnects.
func TestRejoiningNodeDoesNotRaiseTheTerm(t *testing.T) {
	f := mustFleet(t, 3, func(c *cluster.Config) { c.Profile = cluster.ProfileDefault })
	leader := f.leader()
	if _, ok := leader.Transport().(raft.WithPreVote); !ok {
		t.Fatalf("%T hides pre-vote from raft", leader.Transport())
	}
	// A machine that pauses for a second may cause an unrelated election. Such
	// rounds prove nothing and are repeated. They must be few, because without
	// pre-vote every round would be one.
	const maxDisturbed = 3
	rounds := testsize.Pick(5, 20)
	good, disturbed := 0, 0
	for round := 0; good < rounds && disturbed <= maxDisturbed; round++ {
		if f.mustRejoin(round) {
			good++
		} else {
			disturbed++
		}
	}
	t.Logf("%d rejoins left the term unchanged, %d were disturbed", good, disturbed)
	if good < rounds {
		t.Errorf("the term changed in %d of %d rounds", disturbed, good+disturbed)
	}
}

// mustRejoin cuts a follower off until it asks for votes, reconnects it, and
// reports whether the term is unchanged. The follower may never raise its own
// term while cut off.
func (f *fleet) mustRejoin(round int) bool {
	f.t.Helper()
	leader := f.leader()
	victim := f.follower(leader)
	f.wire.isolate(victim.cfg.Name, true)
	term := victim.Term()
	// It has given up on the leader, so it now asks for votes.
	eventually(f.t, "the node has no leader", func() bool {
		_, known := victim.Leader()
		return !known
	})
	_, index := leader.mustPropose(f.t, toyCommand{Op: fmt.Sprint("cut", round), Key: "k", Value: int64(round)})
	if victim.Term() != term {
		f.t.Errorf("round %d: cut off, the node went from term %d to %d", round, term, victim.Term())
	}
	f.wire.isolate(victim.cfg.Name, false)
	eventually(f.t, "the node is back", func() bool {
		_, known := victim.Leader()
		return known && victim.CommitIndex() >= index
	})
	unchanged := true
	for _, p := range f.peers {
		unchanged = unchanged && p.Term() == term
	}
	if got := victim.mustRead(f.t, "k"); got != int64(round) {
		f.t.Errorf("round %d: the node reads %d", round, got)
	}
	return unchanged
}

func TestPartitionedLeaderNeitherWritesNorReads(t *testing.T) {
	f := mustFleet(t, 3, nil)
	old := f.leader()
	old.mustPropose(t, toyCommand{Op: "before", Key: "k", Value: 1})
	f.wire.isolate(old.cfg.Name, true)
	f.live(old).leader().mustPropose(t, toyCommand{Op: "after", Key: "k", Value: 2})
	if index, err := old.ReadIndex(t.Context()); err == nil {
		t.Errorf("the old leader answers a read with index %d", index)
	}
	f.wire.isolate(old.cfg.Name, false)
	if got := old.mustRead(t, "k"); got != 2 {
		t.Errorf("healed, the old leader reads %d", got)
	}
}

// TestPartitionedLeaderLengthensNoLease checks that a leader without a majority
// never answers a heartbeat that reaches it. The answer would extend leases
// that another leader may consider expired.
func TestPartitionedLeaderLengthensNoLease(t *testing.T) {
	f := mustFleet(t, 3, nil)
	old := f.leader()
	node := f.follower(old).ID()
	eventually(t, "a heartbeat is answered", func() bool { return old.HearFrom(t.Context(), node, 0) == nil })
	f.wire.isolate(old.cfg.Name, true)
	if err := old.HearFrom(t.Context(), node, 0); err == nil {
		t.Error("the old leader answers a heartbeat")
	}
	f.wire.isolate(old.cfg.Name, false)
	eventually(t, "a heartbeat is answered again", func() bool {
		return f.leader().HearFrom(t.Context(), node, 0) == nil
	})
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
	f.mustAdd() // This needs connections of every kind.
	f.awaitVoters(3)
	if got := f.peers[0].Term(); got != term {
		t.Errorf("term %d became %d", term, got)
	}
}
