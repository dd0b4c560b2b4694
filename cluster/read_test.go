package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/cluster"
	"berth/compute"
	"berth/fault"
	"berth/testsize"
)

// TestReadsAreNotStale stops the leader, has the others acknowledge a newer
// value, requests reads from the stopped leader, and resumes it. Any answer
// must be the newer value. With the planted bug verify-leader it fails: the
// first stale read usually comes within 30 rounds, and nearly always within
// 100.
func TestReadsAreNotStale(t *testing.T) {
	const readsPerNode = 20
	staleRounds := testsize.Pick[int64](6, 26)
	if fault.Enabled { // The control, with and without the bug.
		staleRounds = 150
	}
	peers := mustProcesses(t, 3)
	reads, stale, refused := 0, 0, 0
	for value := int64(1); value <= staleRounds && stale == 0; value++ {
		leader := processLeader(t, peers)
		leader.mustDo(t, "/write", toyCommand{Op: fmt.Sprint("before", value), Key: "k", Value: value*10 - 5})
		leader.signal(syscall.SIGSTOP)
		for _, p := range peers {
			if p != leader {
				p.mustDo(t, "/write", toyCommand{Op: fmt.Sprint("after", value), Key: "k", Value: value * 10})
				break
			}
		}
		answers := make(chan error, len(peers)*readsPerNode)
		var wg sync.WaitGroup
		for _, p := range peers {
			for range readsPerNode {
				wg.Go(func() { answers <- readAtLeast(t.Context(), p, value*10) })
			}
		}
		// The requests to the stopped leader are in its socket or in flight. In
		// both cases the read began after the acknowledgement.
		leader.signal(syscall.SIGCONT)
		wg.Wait()
		close(answers)
		for err := range answers {
			_, old := errors.AsType[staleError](err)
			switch {
			case err == nil:
				reads++
			case old:
				reads++
				stale++
				t.Error(err)
			default:
				refused++
			}
		}
	}
	t.Logf("%d reads, %d stale, %d refused", reads, stale, refused)
	if least := int(staleRounds) * 40; reads < least && !t.Failed() {
		t.Errorf("only %d reads were answered, %d refused", reads, refused)
	}
}

// TestFollowerCompletesAMajority checks when a leader gives a read index without asking others:
// if it and the voter that asks are a majority, and both are in its term.
func TestFollowerCompletesAMajority(t *testing.T) {
	f := mustFleet(t, 3, func(c *cluster.Config) { c.Voters = 5 })
	var leader, follower *peer
	var term uint64
	eventually(t, "a follower gets an index", func() bool {
		leader = f.leader()
		follower, term = f.follower(leader), leader.Term()
		_, index := leader.mustPropose(t, toyCommand{Op: "1", Key: "k", Value: 1})
		got, ok := leader.IndexFor(follower.ID(), term)
		if ok && got < index {
			t.Fatalf("index %d of an entry at %d", got, index)
		}
		return ok // A slow machine may change the leader.
	})
	for name, asks := range map[string]struct {
		of    *peer
		asker compute.NodeID
		term  uint64
	}{
		"an earlier term": {leader, follower.ID(), term - 1},
		"a later term":    {leader, follower.ID(), term + 1},
		"no term":         {leader, follower.ID(), 0},
		"a stranger":      {leader, compute.NodeID{UUID: compute.UUID{1}}, term},
		"nobody":          {leader, compute.NodeID{}, term},
		"the leader":      {leader, leader.ID(), term},
		"a follower":      {follower, leader.ID(), term},
	} {
		if _, ok := asks.of.IndexFor(asks.asker, asks.term); ok {
			t.Errorf("%s: a majority", name)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // So that a heartbeat is refused where others have to be asked.
	if err := leader.HearFrom(ended, follower.ID(), term); err != nil && leader.Term() == term {
		t.Errorf("a heartbeat of the follower: %v", err)
	}
	if leader.HearFrom(ended, follower.ID(), term-1) == nil {
		t.Error("a heartbeat of an earlier term is answered")
	}
	f.wire.isolate(leader.cfg.Name, true)
	newer := f.live(leader).leader()
	newer.mustPropose(t, toyCommand{Op: "2", Key: "k", Value: 2})
	for _, p := range f.peers {
		if p == leader {
			continue
		}
		if _, ok := leader.IndexFor(p.ID(), p.Term()); ok {
			t.Errorf("cut off, the leader of term %d gives an index to a voter of term %d", term, p.Term())
		}
		if leader.HearFrom(ended, p.ID(), p.Term()) == nil {
			t.Errorf("cut off, the leader of term %d answers the heartbeat of a voter of term %d", term, p.Term())
		}
	}
	f.wire.isolate(leader.cfg.Name, false)
	for range 2 {
		f.mustAdd()
	}
	f.awaitVoters(5)
	leader = f.leader()
	if _, ok := leader.IndexFor(f.follower(leader).ID(), leader.Term()); ok {
		t.Error("two of five voters are a majority")
	}
	if got := f.follower(leader).mustRead(t, "k"); got != 2 {
		t.Errorf("among five, a follower reads %d", got)
	}
}

type staleError struct{ got, want int64 }

func (e staleError) Error() string {
	return fmt.Sprintf("a read that began after %d was acknowledged returned %d", e.want, e.got)
}

func readAtLeast(ctx context.Context, p *process, want int64) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s, err := p.do(ctx, "/read?key=k", nil)
	if err == nil && s.Value < want {
		err = staleError{s.Value, want}
	}
	return err
}
