package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster"
	"berth/compute"
)

func TestProposalsAreForwardedAndCoalesced(t *testing.T) {
	f := mustFleet(t, 3, nil)
	leader := f.leader()
	for _, p := range []*peer{leader, f.follower(leader)} {
		t.Run(fmt.Sprint("on the leader ", p == leader), func(t *testing.T) {
			const ops = 1000
			leader.fsm.mu.Lock()
			entries, applied := leader.fsm.entries, leader.fsm.state.Applied
			leader.fsm.mu.Unlock()
			var wg sync.WaitGroup
			for i := range ops {
				wg.Go(func() {
					op := fmt.Sprintf("%s-%d", p.cfg.Name, i)
					result, index := p.mustPropose(t, toyCommand{Op: op, Key: op, Value: int64(i)})
					if !strings.HasPrefix(result, op+":") || index == 0 {
						t.Errorf("%s got the result %q at %d", op, result, index)
					}
				})
			}
			wg.Wait()
			leader.fsm.mu.Lock()
			entries, applied = leader.fsm.entries-entries, leader.fsm.state.Applied-applied
			leader.fsm.mu.Unlock()
			t.Logf("%d operations in %d entries", applied, entries)
			if applied != ops || entries > ops/4 {
				t.Errorf("%d operations had %d effects in %d entries", ops, applied, entries)
			}
		})
	}
}

func TestProposalsOfAllSizes(t *testing.T) {
	f := mustFleet(t, 2, nil)
	follower := f.follower(f.leader())
	var wg sync.WaitGroup
	for i := range 12 { // More than an entry and a batch may hold.
		wg.Go(func() {
			op := fmt.Sprint("large", i)
			pad := make([]byte, 150<<10)
			follower.mustPropose(t, toyCommand{Op: op, Key: "k", Value: 1, Pad: pad})
		})
	}
	wg.Wait()
	for _, size := range []int{0, cluster.MaxFrame + 1} {
		_, _, err := follower.Propose(t.Context(), make([]byte, size))
		if compute.CodeOf(err) != compute.CodeTooLarge {
			t.Errorf("a frame of %d bytes: %v", size, err)
		}
	}
}

func TestProposalWithoutALeader(t *testing.T) {
	f := mustFleet(t, 2, nil)
	leader := f.leader()
	f.wire.isolate(leader.cfg.Name, true)
	other := f.follower(leader)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	eventually(t, "the leader is gone", func() bool { _, known := other.Leader(); return !known })
	_, _, err := other.Propose(ctx, opFrame(toyCommand{Op: "x", Key: "k"}))
	if e, ok := errors.AsType[*compute.Error](err); !ok || e.Code != compute.CodeUnavailable || e.RetryAfter == 0 || e.Detail != "no_leader" {
		t.Errorf("without a leader: %v", err)
	}
}

func TestUnknownOutcomeIsCalledUnknown(t *testing.T) {
	f := mustFleet(t, 2, nil)
	leader := f.leader()
	f.wire.isolate(leader.cfg.Name, true)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	// The leader has appended the entry; the others have not.
	_, _, err := leader.Propose(ctx, opFrame(toyCommand{Op: "x", Key: "k"}))
	if e, ok := errors.AsType[*compute.Error](err); !ok || e.Code != compute.CodeUnavailable || e.Detail != "outcome_unknown" ||
		!strings.Contains(e.Message, "Idempotency-Key") {
		t.Errorf("the outcome is open, but: %v", err)
	}
}

// TestKilledLeaderLosesNothing kills the leader during concurrent proposals.
// Afterwards everything acknowledged exists exactly once.
func TestKilledLeaderLosesNothing(t *testing.T) {
	const workers, each = 8, 60
	peers := mustProcesses(t, 3)
	victim := processLeader(t, peers)
	var acked atomic.Int64
	killed := make(chan struct{})
	kill := sync.OnceFunc(func() {
		victim.signal(syscall.SIGKILL)
		close(killed)
	})
	var mu sync.Mutex
	results := map[string]string{}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				op := fmt.Sprintf("w%d-%d", w, i)
				result := proposeAnywhere(t, peers, toyCommand{Op: op, Key: op, Value: int64(i)})
				mu.Lock()
				results[op] = result
				mu.Unlock()
				if acked.Add(1) == workers*each/4 {
					kill()
				}
			}
		})
	}
	wg.Wait()
	<-killed
	<-victim.exited
	for i, p := range peers {
		if p == victim {
			// It restarts at another address with its old data.
			peers[i] = mustProcess(t, peerSettings{DataDir: p.settings.DataDir})
		}
	}
	for op, want := range results {
		wg.Go(func() {
			if got := proposeAnywhere(t, peers, toyCommand{Op: op, Key: op}); got != want {
				t.Errorf("%s was acknowledged as %q, repeated it gives %q", op, want, got)
			}
		})
	}
	wg.Wait()
	eventually(t, "all replicas have all operations once", func() bool {
		for _, p := range peers {
			if s := p.mustDo(t, "/status", nil); s.Applied != workers*each {
				return false
			}
		}
		return true
	})
}

// proposeAnywhere proposes at a random peer until one acknowledges.
func proposeAnywhere(t testing.TB, peers []*process, c toyCommand) string {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		s, err := peers[rand.N(len(peers))].do(ctx, "/write", c)
		if err == nil {
			return s.Result
		}
		if ctx.Err() != nil {
			t.Errorf("%s was never acknowledged: %v", c.Op, err)
			return ""
		}
	}
}

// TestStopWithEntriesToApply stops a peer whose state machine is behind. Raft
// forgets the entries that wait for it, so nothing may wait for them.
func TestStopWithEntriesToApply(t *testing.T) {
	for range 4 { // Which entries the state machine applies before its end is random.
		f := mustFleet(t, 1, nil)
		p := f.leader()
		p.fsm.mu.Lock()
		before := p.CommitIndex()
		ctx, cancel := context.WithCancel(t.Context())
		var asked sync.WaitGroup
		for i := range int64(4) {
			frame := opFrame(toyCommand{Op: fmt.Sprint(i), Key: "k", Value: i})
			asked.Go(func() {
				if i > 0 { // Proposals would wait for the first one.
					if err := p.ApplyEntry(frame); err != nil && !errors.Is(err, raft.ErrRaftShutdown) {
						t.Errorf("entry %d: %v", i, err)
					}
					return
				}
				_, _, err := p.Propose(ctx, frame)
				if err != nil && compute.CodeOf(err) != compute.CodeUnavailable && !errors.Is(err, context.Canceled) {
					t.Errorf("the proposal: %v", err)
				}
			})
			eventually(t, "the entry is committed", func() bool { return p.CommitIndex() > before+uint64(i) })
		}
		stopped := make(chan error, 1)
		go func() { stopped <- p.stop() }()
		eventually(t, "it leads no more", func() bool { return !p.IsLeader() })
		p.fsm.mu.Unlock()
		select {
		case err := <-stopped:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(patience):
			t.Fatal("it does not stop")
		}
		cancel()
		asked.Wait()
	}
}

// TestFollowersLearnOfCommits has raft tell followers of a commit only with the next
// append, an hour later at the most: the leader tells them at once. Other entries, such
// as those of the clock, also tell them, so that only a round without one counts.
func TestFollowersLearnOfCommits(t *testing.T) {
	const rounds = 20
	f := mustFleet(t, 3, func(cfg *cluster.Config) { cfg.CommitAfter(time.Hour) })
	told, value := false, int64(0)
	for ; !told && value < rounds; value++ {
		leader := f.leader()
		_, index := leader.mustPropose(t, toyCommand{Op: fmt.Sprint("op", value), Key: "k", Value: value})
		for _, p := range f.peers {
			eventually(t, fmt.Sprintf("%s to apply entry %d", p.cfg.Name, index), func() bool {
				p.fsm.mu.Lock()
				defer p.fsm.mu.Unlock()
				return p.fsm.state.Index >= index
			})
		}
		told = leader.LastIndex() == index
	}
	if !told {
		t.Errorf("in none of %d rounds were the followers told before the next entry", rounds)
	}
	if _, err := f.leader().Transfer(t.Context(), compute.NodeID{}); err != nil {
		t.Fatal(err)
	}
	for _, p := range f.peers {
		if got := p.mustRead(t, "k"); got != value-1 {
			t.Errorf("%s reads %d under the next leader", p.cfg.Name, got)
		}
	}
}
