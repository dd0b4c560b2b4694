package cluster_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"berth/cluster"
	"berth/compute"
)

// newStaffed starts peers, three of which vote.
func newStaffed(t *testing.T, peers int) *fleet {
	t.Helper()
	f := newFleet(t, func(c *cluster.Config) {
		c.Voters, c.ReplaceAfter = 3, 2*time.Second
	})
	for range peers {
		f.mustAdd()
	}
	f.awaitVoters(3)
	return f
}

// membership reports whether the peer is in the leader's configuration, and
// whether it votes there.
func membership(leader *peer, id compute.NodeID) (known, votes bool) {
	for _, s := range leader.Servers() {
		if s.ID == id {
			return true, s.Voter
		}
	}
	return false, false
}

// live returns the fleet without the stopped peers.
func (f *fleet) live(stopped ...*peer) *fleet {
	rest := *f
	rest.peers = slices.DeleteFunc(slices.Clone(f.peers), func(p *peer) bool { return slices.Contains(stopped, p) })
	return &rest
}

// voterBut returns a voter that is not the leader.
func (f *fleet) voterBut(leader *peer) *peer {
	f.t.Helper()
	for _, p := range f.peers {
		if _, votes := membership(leader, p.ID()); votes && p != leader {
			return p
		}
	}
	f.t.Fatal("no other voter")
	return nil
}

func TestDeadVoterIsReplaced(t *testing.T) {
	for _, test := range []struct {
		peers  int
		leader bool // The leader dies.
	}{{4, false}, {5, true}} {
		t.Run(fmt.Sprintf("%d servers, leader %v", test.peers, test.leader), func(t *testing.T) {
			f := newStaffed(t, test.peers)
			leader := f.leader()
			dead := f.voterBut(leader)
			if test.leader {
				dead = leader
			}
			if err := dead.stop(); err != nil {
				t.Fatal(err)
			}
			rest := f.live(dead)
			eventually(t, "a standby votes in its place", func() bool {
				known, votes := membership(rest.leader(), dead.ID())
				return known && !votes && voters(rest.leader()) == 3
			})
			rest.leader().mustPropose(t, toyCommand{Op: "without", Key: "k", Value: 1})
			back := f.mustRestart(slices.Index(f.peers, dead))
			if got := back.mustRead(t, "k"); got != 1 {
				t.Errorf("the one that came back reads %d", got)
			}
			if _, votes := membership(f.leader(), back.ID()); votes || voters(f.leader()) != 3 {
				t.Errorf("it came back as a voter of %d", voters(f.leader()))
			}
		})
	}
}

func voters(p *peer) int {
	n := 0
	for _, s := range p.Servers() {
		if s.Voter {
			n++
		}
	}
	return n
}

func TestRemovalNeverCostsTheQuorum(t *testing.T) {
	f := newStaffed(t, 3)
	leader := f.leader()
	dead := f.voterBut(leader)
	rest := f.live(dead)
	other := rest.follower(leader)
	for _, p := range f.peers {
		if r := p.CheckRemoval(t.Context(), other.ID()); r != nil {
			t.Errorf("%s: while all answer: %+v", p.cfg.Name, r)
		}
	}
	if err := dead.stop(); err != nil {
		t.Fatal(err)
	}
	for _, p := range rest.peers {
		for _, id := range []compute.NodeID{leader.ID(), other.ID()} {
			r := p.CheckRemoval(t.Context(), id)
			if r == nil || r.Voters != 2 || r.Answering != 1 || !slices.Equal(r.Silent, []compute.NodeID{dead.ID()}) {
				t.Errorf("%s: without half of those that answer: %+v", p.cfg.Name, r)
			}
		}
		if r := p.CheckRemoval(t.Context(), dead.ID()); r != nil {
			t.Errorf("%s: of the dead one: %+v", p.cfg.Name, r)
		}
	}
	// Removed anyway, as by two concurrent requests, it keeps its vote.
	f.registry.remove(other.ID())
	until := time.Now().Add(3 * time.Second)
	for i := 0; time.Now().Before(until); i++ {
		rest.leader().mustPropose(t, toyCommand{Op: fmt.Sprint("held", i), Key: "k", Value: int64(i)})
	}
	if _, votes := membership(leader, other.ID()); !votes {
		t.Error("the removed server lost its vote")
	}
	select {
	case <-other.done:
		t.Fatal("the removed server ended while its vote was needed")
	default:
	}
	back := f.mustRestart(slices.Index(f.peers, dead))
	eventually(t, "the removed server leaves", func() bool {
		known, _ := membership(f.live(other).leader(), other.ID())
		return !known
	})
	back.mustPropose(t, toyCommand{Op: "after", Key: "k", Value: -1})
	endsRemoved(t, other)
}

// endsRemoved waits until the peer ends because it was removed.
func endsRemoved(t *testing.T, p *peer) {
	t.Helper()
	select {
	case <-p.done:
	case <-afterPatience():
		t.Fatal("the removed server goes on")
	}
	if err := p.stop(); !cluster.IsRemoved(err) {
		t.Errorf("it ended with %v", err)
	}
}

func TestRemovedLeaderHandsOver(t *testing.T) {
	for _, peers := range []int{2, 3} {
		t.Run(fmt.Sprint(peers), func(t *testing.T) {
			f := mustFleet(t, peers, nil)
			leader := f.leader()
			term := leader.Term()
			f.registry.remove(leader.ID())
			endsRemoved(t, leader)
			rest := f.live(leader)
			rest.leader().mustPropose(t, toyCommand{Op: "after", Key: "k", Value: 1})
			if got := rest.leader().Term(); got > term+2 { // A vote may be repeated.
				t.Errorf("term %d became %d: leadership was lost, not handed over", term, got)
			}
			if known, _ := membership(rest.leader(), leader.ID()); known {
				t.Error("it is still in the configuration")
			}
		})
	}
}

func TestLastServerIsNotRemoved(t *testing.T) {
	f := mustFleet(t, 1, nil)
	p := f.leader()
	if r := p.CheckRemoval(t.Context(), p.ID()); r == nil || r.Voters != 0 {
		t.Errorf("got %+v", r)
	}
	if r := p.CheckRemoval(t.Context(), newID()); r != nil {
		t.Errorf("of one that is no server: %+v", r)
	}
}
