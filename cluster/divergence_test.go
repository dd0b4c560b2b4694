package cluster_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"berth/cluster"
	"berth/cluster/replica"
)

// TestReplicaWithAnotherStateIsReplaced changes the state of a follower behind
// raft's back. The leader detects it, and the follower ends and rejoins with an
// empty replica. The second time it stays out until an operator lets it in,
// because he should investigate.
func TestReplicaWithAnotherStateIsReplaced(t *testing.T) {
	var mu sync.Mutex
	var ended []string
	f := newFleet(t, func(c *cluster.Config) {
		name := c.Name
		c.Fatal = func(error) {
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, name)
		}
	})
	f.marks = true
	for range 3 {
		f.mustAdd()
	}
	f.awaitVoters(3)
	written := int64(0)
	write := func() { // At least one mark.
		for range toyMarkEvery + 1 {
			written++
			f.leader().mustPropose(t, toyCommand{Op: fmt.Sprint(written), Key: "k", Value: written})
		}
		for _, p := range f.peers {
			p.mustRead(t, "k")
		}
	}
	spoil := func(p *peer) {
		p.fsm.mu.Lock()
		defer p.fsm.mu.Unlock()
		p.fsm.state.Values["spoilt"] = 1
	}
	compare := func() []string {
		f.leader().CompareOnce(t.Context())
		mu.Lock()
		defer mu.Unlock()
		return ended
	}
	write()
	if got := compare(); len(got) != 0 {
		t.Fatalf("with equal states %v ended", got)
	}
	p := f.follower(f.leader())
	spoil(p)
	write()
	if got := compare(); len(got) != 1 || got[0] != p.cfg.Name {
		t.Fatalf("%v ended, the state of %s is another one", got, p.cfg.Name)
	}
	f.mustKnowPeers(p)
	mustStop(t, p)
	p = f.mustStartAgain(p)
	f.awaitVoters(3)
	if got := p.mustRead(t, "k"); got != written || p.fsm.get("spoilt") != 0 {
		t.Errorf("it reads %d, want %d", got, written)
	}
	if got := asides(t, p.cfg.DataDir); len(got) != 1 {
		t.Errorf("set aside: %v", got)
	}
	spoil(p)
	write()
	eventually(t, "Health to name it", func() bool {
		found, err := f.leader().Health(t.Context())
		compare()
		return err == nil && slices.Contains(found.Diverged, p.ID())
	})
	if got := compare(); len(got) != 2 {
		t.Fatalf("%v ended, its state is another one again", got)
	}
	f.mustKnowPeers(p)
	mustStop(t, p)
	for _, word := range []string{"was wrong twice", "Test the memory", "berth admin raft rejoin"} {
		if err := f.refusal(p.again()); !strings.Contains(err.Error(), word) {
			t.Errorf("refused with %q, want %q in it", err, word)
		}
	}
	stopped, err := replica.OpenStopped(p.cfg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stopped.Rejoin(), stopped.Close()); err != nil {
		t.Fatal(err)
	}
	p = f.mustStartAgain(p)
	f.awaitVoters(3)
	if got := p.mustRead(t, "k"); got != written || p.fsm.get("spoilt") != 0 {
		t.Errorf("it reads %d, want %d", got, written)
	}
}
