package cluster

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"berth/cluster/raftconf"
	"berth/compute"
)

// queued returns n proposals with frames of so many bytes.
func queued(n, bytes int) []*proposal {
	out := make([]*proposal, n)
	for i := range out {
		out[i] = &proposal{frame: make([]byte, bytes), done: make(chan outcome, 1)}
	}
	return out
}

func TestProposalsWaitForABatchInFlight(t *testing.T) {
	const full, large = 2 * batchFrames, 100 << 10
	for name, tt := range map[string]struct {
		frames []int // How many are added at a time.
		bytes  int
		want   []int // Sizes of the batches before one has returned.
		last   int   // Size of the first batch behind them.
	}{
		"one at a time":            {[]int{1, 1, 1, 1, 1}, 100, []int{1}, 4},
		"together":                 {[]int{5}, 100, []int{5}, 0},
		"worth an entry":           {[]int{1, worthFrames, 1, worthFrames}, 100, []int{1, worthFrames, 1 + worthFrames}, 0},
		"almost worth one":         {[]int{1, worthFrames - 1}, 100, []int{1}, worthFrames - 1},
		"large frames":             {[]int{1, 1, 1, 1, 1, 1, 1}, large, []int{1, 3, 3}, 0},
		"no more than are allowed": {[]int{1, 64, 64, 64, 64, 64}, 100, []int{1, 64, 64, 64}, 128},
		"more than a batch holds":  {[]int{1, full}, 100, []int{1, batchFrames, batchFrames}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sizes []int
				release := make(chan struct{})
				var mu sync.Mutex
				l := &batcher{spawn: func(fn func()) { go fn() }, send: func(batch []*proposal) {
					mu.Lock()
					sizes = append(sizes, len(batch))
					mu.Unlock()
					<-release
					finish(batch, outcome{Status: statusCommitted})
				}}
				var all []*proposal
				for _, n := range tt.frames {
					some := queued(n, tt.bytes)
					all = append(all, some...)
					if taken := l.add(some...); taken != n {
						t.Fatalf("it took %d of %d", taken, n)
					}
					synctest.Wait()
				}
				if !slices.Equal(sizes, tt.want) {
					t.Errorf("batches of %v in flight, want %v", sizes, tt.want)
				}
				sent := len(sizes)
				close(release)
				synctest.Wait()
				if tt.last > 0 && (len(sizes) == sent || sizes[sent] != tt.last) {
					t.Errorf("batches of %v, want %d behind those in flight", sizes, tt.last)
				}
				for i, p := range all {
					if o := <-p.done; o.Status != statusCommitted {
						t.Fatalf("proposal %d: %+v", i, o)
					}
				}
				if l.active != 0 || l.bytes != 0 || len(l.queue) != 0 {
					t.Errorf("left over: %d senders, %d bytes, %d proposals", l.active, l.bytes, len(l.queue))
				}
			})
		})
	}
}

func TestOnlyWaitingProposalsAreAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		l := &batcher{spawn: func(fn func()) { go fn() }, send: func(batch []*proposal) {
			<-release
			finish(batch, outcome{Status: statusCommitted})
		}}
		some := queued(3, 100)
		for _, p := range some {
			l.add(p)
			synctest.Wait()
		}
		if some[0].abandon() || !some[2].abandon() {
			t.Error("only what waits can be abandoned")
		}
		close(release)
		synctest.Wait()
		if len(some[1].done) != 1 || len(some[2].done) != 0 || l.active != 0 || l.bytes != 0 {
			t.Errorf("%d and %d outcomes, %d senders, %d bytes", len(some[1].done), len(some[2].done), l.active, l.bytes)
		}
	})
}

// TestAbandonedProposalsMakeNoBatch abandons all that wait.
func TestAbandonedProposalsMakeNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, sent := make(chan struct{}), 0
		l := &batcher{spawn: func(fn func()) { go fn() }, send: func(batch []*proposal) {
			sent += len(batch)
			<-release
			finish(batch, outcome{Status: statusCommitted})
		}}
		first, others := queued(1, 100), queued(3, 100)
		l.add(first...)
		synctest.Wait()
		l.add(others...)
		for _, p := range others {
			p.abandon()
		}
		close(release)
		synctest.Wait()
		if sent != 1 || l.active != 0 || l.bytes != 0 {
			t.Errorf("%d sent, %d senders, %d bytes", sent, l.active, l.bytes)
		}
	})
}

// TestStuckBatchHoldsNothingBack has a call that does not return, as to a leader that
// hangs: what comes later waits for a second, and then no longer.
func TestStuckBatchHoldsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, begun := make(chan struct{}), time.Now()
		l := &batcher{spawn: func(fn func()) { go fn() }, send: func(batch []*proposal) {
			if len(batch[0].frame) == 1 {
				<-release
			}
			finish(batch, outcome{Status: statusCommitted})
		}}
		l.add(queued(1, 1)...)
		synctest.Wait()
		waiting := queued(3, 100)
		l.add(waiting...)
		<-waiting[2].done
		if after := time.Since(begun); after != stuckAfter {
			t.Errorf("they waited for %v, want %v", after, stuckAfter)
		}
		later := queued(1, 100)
		l.add(later...)
		<-later[0].done
		if after := time.Since(begun); after != stuckAfter {
			t.Errorf("a later one came after %v, want %v", after, stuckAfter)
		}
		close(release)
		synctest.Wait()
		if l.active != 0 || l.stuck != 0 {
			t.Errorf("%d senders, of which %d are stuck", l.active, l.stuck)
		}
	})
}

func TestWaitingProposalsAreBounded(t *testing.T) {
	stuck := make(chan struct{})
	l := &batcher{spawn: func(fn func()) { go fn() }, send: func([]*proposal) { <-stuck }}
	defer close(stuck)
	n := 0
	for l.add(queued(1, 1<<20)...) == 1 {
		n++
	}
	if n < 60 || n > 80 {
		t.Errorf("it took %d MiB", n)
	}
	if taken := l.add(queued(2, 1<<20)...); taken != 0 {
		t.Errorf("full, it took %d more", taken)
	}
}

func TestARoundServesOnlyWhoCameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count, begun := 0, make(chan struct{})
		release := make(chan struct{})
		r := &rounds{spawn: func(fn func()) { go fn() }, do: func() (uint64, error) {
			count++
			begun <- struct{}{}
			<-release
			return uint64(count), nil
		}}
		join := func(out *uint64) func() {
			return func() { *out, _ = r.join(context.Background()) }
		}
		var first, second, third uint64
		go join(&first)()
		<-begun
		// The first round has started, so it may not serve these.
		go join(&second)()
		go join(&third)()
		synctest.Wait()
		release <- struct{}{}
		<-begun
		release <- struct{}{}
		synctest.Wait()
		if first != 1 || second != 2 || third != 2 || count != 2 {
			t.Errorf("served by rounds %d, %d, %d of %d", first, second, third, count)
		}
	})
}

func TestJudgeApplyErrors(t *testing.T) {
	for err, want := range map[error]commitStatus{
		raft.ErrNotLeader:                    statusNotCommitted,
		raft.ErrEnqueueTimeout:               statusNotCommitted,
		raft.ErrLeadershipTransferInProgress: statusNotCommitted,
		raft.ErrAbortedByRestore:             statusNotCommitted,
		raft.ErrLeadershipLost:               statusUnknown,
		raft.ErrRaftShutdown:                 statusUnknown,
		errors.New("no space left"):          statusUnknown,
	} {
		if got := commitStatusOf(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

func TestAdvertisedHost(t *testing.T) {
	for _, test := range []struct{ configured, listening, want string }{
		{"node.example", "0.0.0.0", "node.example"},
		{"", "127.0.0.1", "127.0.0.1"},
		{"", "10.1.2.3", "10.1.2.3"},
	} {
		got, err := AdvertisedHost(test.configured, net.ParseIP(test.listening))
		if err != nil || got != test.want {
			t.Errorf("AdvertisedHost(%q, %s) = %q, %v; want %q", test.configured, test.listening, got, err, test.want)
		}
	}
	if got := joinPort("::1", 6471); got != "[::1]:6471" {
		t.Errorf("joinPort gives %s", got)
	}
}

func TestSpaceCheck(t *testing.T) {
	const size = 256 << 20
	for _, test := range []struct {
		name            string
		check           spaceCheck
		short, restores bool
	}{
		{"much free space", spaceCheck{free: 10 * size, size: size, held: true}, false, false},
		{"just enough", spaceCheck{free: size, size: size, held: true}, false, false},
		{"less than the ballast", spaceCheck{free: size - 1, size: size, held: true}, true, false},
		{"free space inside the log", spaceCheck{free: 1, slack: size, size: size, held: true}, false, false},
		{"was full, hardly more", spaceCheck{free: size, size: size, held: true, full: true}, true, false},
		{"was full, has free space", spaceCheck{free: size + size/4, size: size, held: true, full: true}, false, false},
		{"given up, free space for it alone", spaceCheck{free: size + size/4, size: size, full: true}, true, true},
		{"given up, no free space", spaceCheck{free: size, size: size, full: true}, true, false},
		{"given up, much free space", spaceCheck{free: 3 * size, size: size, full: true}, false, true},
		{"none wanted", spaceCheck{free: 0}, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if short, restores := test.check.short(), test.check.restores(); short != test.short || restores != test.restores {
				t.Errorf("short %v, restores %v", short, restores)
			}
		})
	}
}

// TestMayVote checks that a node learns of its removal, after which it ends for
// good, only from committed configurations. A node that only has an uncommitted
// configuration must not report it.
func TestMayVote(t *testing.T) {
	const index = 7
	a, b := letter('A'), letter('B')
	newest := raft.Configuration{Servers: []raft.Server{
		{ID: raftconf.ServerID(a), Suffrage: raft.Voter}, {ID: raftconf.ServerID(b), Suffrage: raft.Nonvoter},
	}}
	for _, test := range []struct {
		name      string
		id        compute.NodeID
		committed uint64
		want      bool
	}{
		{"a voter", a, index, true},
		{"a standby", b, index, false},
		{"one that is not there", letter('C'), index + 1, false},
		{"one that may have been there", letter('C'), index - 1, true},
		{"one that may have voted", b, index - 1, true},
	} {
		if got := mayVote(test.id, newest, index, test.committed); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestHeardInTheTerm checks that contacts a server had as the leader of an
// earlier term do not count in this one.
func TestHeardInTheTerm(t *testing.T) {
	c := newCluster(Config{Registerer: prometheus.NewRegistry()}.withDefaults())
	h, now, node := c.heartbeats, time.Unix(1_000_000, 0), letter('B')
	h.now = func() time.Time { return now }
	heard := func() time.Time {
		t.Helper()
		at, leads := c.Heard(node)
		if !leads {
			t.Fatal("it does not lead")
		}
		return at
	}
	if _, leads := c.Heard(node); leads {
		t.Error("it leads before its first term")
	}
	for number := range uint64(2) {
		now = now.Add(time.Second)
		h.startTerm()
		c.terms.set(&term{number: 1 + number})
		if at := heard(); !at.IsZero() {
			t.Errorf("in term %d it was heard at %v, before it said anything", 1+number, at)
		}
		now = now.Add(time.Second)
		h.keep(node, heardFrom{at: now})
		if at := heard(); !at.Equal(now) {
			t.Errorf("in term %d it was heard at %v, want %v", 1+number, at, now)
		}
	}
}

// TestGoneNodesAreForgotten checks that nodes that come and go do not fill the
// leader's record of heartbeats. The leader goes on measuring the silence of
// the nodes in the state.
func TestGoneNodesAreForgotten(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	id := func(n int) compute.NodeID {
		return compute.NodeID{UUID: compute.UUID{byte(n >> 16), byte(n >> 8), byte(n), 1}}
	}
	members := directoryOf{id(1): false, id(2): true, id(maxHeard): false}
	h := newHeartbeats(&Cluster{cfg: Config{Directory: members}})
	for n := range maxHeard {
		if !h.keep(id(n), heardFrom{at: at}) {
			t.Fatalf("no room for node %d", n)
		}
	}
	now := at.Add(aliveFor)
	h.heard[id(3)] = heardFrom{at: now} // It was removed, but still votes.
	if h.keep(id(maxHeard), heardFrom{at: now}) {
		t.Fatalf("room for more than %d nodes", maxHeard)
	}
	h.forgetRemoved(now)
	if !h.keep(id(maxHeard), heardFrom{at: now}) {
		t.Error("no room once nodes are gone")
	}
	for n, want := range map[int]bool{0: false, 1: true, 2: false, 3: true, 4: false, maxHeard: true} {
		if _, kept := h.heard[id(n)]; kept != want {
			t.Errorf("node %d: kept %v, want %v", n, kept, want)
		}
	}
}

// directoryOf is a Directory: the nodes in the state, and whether each was
// removed.
type directoryOf map[compute.NodeID]bool

func (d directoryOf) Node(id compute.NodeID) (compute.Role, bool, bool) {
	removed, known := d[id]
	return compute.RoleWorker, removed, known
}

func (directoryOf) Address(compute.NodeID) string { return "" }

func letter(name byte) compute.NodeID { return compute.NodeID{UUID: compute.UUID{15: name}} }
