package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"berth/boottime"
	"berth/cluster"
	"berth/cluster/timing"
	"berth/loop"
)

// termLog records calls of WhileLeader.
type termLog struct {
	mu     sync.Mutex
	live   int
	terms  []uint64
	faults []string
}

func (l *termLog) begin(term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live++; l.live > 1 {
		l.faults = append(l.faults, fmt.Sprintf("term %d began before the one before had ended", term))
	}
	if n := len(l.terms); n > 0 && l.terms[n-1] >= term {
		l.faults = append(l.faults, fmt.Sprintf("term %d after %d", term, l.terms[n-1]))
	}
	l.terms = append(l.terms, term)
}

func (l *termLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live--
}

func (l *termLog) current() (term uint64, live bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live == 0 {
		return 0, false
	}
	return l.terms[len(l.terms)-1], true
}

func TestTermsDoNotOverlap(t *testing.T) {
	f := mustFleet(t, 3, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	logs := map[*peer]*termLog{}
	for _, p := range f.peers {
		l := &termLog{}
		logs[p] = l
		wg.Go(func() {
			err := p.WhileLeader(ctx, func(ctx context.Context, term uint64) error {
				l.begin(term)
				defer l.end()
				<-ctx.Done()
				// It returns slowly, so the next term has to wait.
				<-time.After(50 * time.Millisecond)
				return ctx.Err()
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("WhileLeader ended with %v", err)
			}
		})
	}
	for range 4 {
		leader := f.leader()
		eventually(t, "the leader's function is called", func() bool {
			term, live := logs[leader].current()
			return live && term == leader.Term()
		})
		f.wire.isolate(leader.cfg.Name, true)
		eventually(t, "the leader's function is ended", func() bool {
			_, live := logs[leader].current()
			return !live
		})
		f.wire.isolate(leader.cfg.Name, false)
		eventually(t, "somebody leads", func() bool {
			_, known := leader.Leader()
			return known
		})
	}
	cancel()
	wg.Wait()
	for p, l := range logs {
		for _, fault := range l.faults {
			t.Errorf("%s: %s", p.cfg.Name, fault)
		}
		t.Logf("%s led in terms %v", p.cfg.Name, l.terms)
	}
}

func TestWhileLeaderReturnsTheFunctionsError(t *testing.T) {
	f := mustFleet(t, 1, nil)
	failed := errors.New("failed")
	err := f.peers[0].WhileLeader(t.Context(), func(_ context.Context, term uint64) error {
		if term == 0 {
			t.Error("the term is 0")
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}

func TestStopHandsLeadershipOver(t *testing.T) {
	f := mustFleet(t, 3, nil)
	leader := f.leader()
	term := leader.Term()
	if err := leader.stop(); err != nil {
		t.Fatal(err)
	}
	// A transfer causes exactly one election. On a busy machine a requested
	// vote may be repeated.
	other := f.follower(leader)
	other.mustPropose(t, toyCommand{Op: "after", Key: "k", Value: 1})
	if other.Term() > term+2 {
		t.Errorf("term %d became %d", term, other.Term())
	}
}

// TestContactCountsFromTheSend delays answers. An answer shows contact at the
// time of the request, not of its arrival.
func TestContactCountsFromTheSend(t *testing.T) {
	const late = 100 * time.Millisecond
	f := mustFleet(t, 2, func(c *cluster.Config) {
		dial := c.Dial
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return lateConn{conn, late}, err
		}
	})
	other := f.follower(f.leader())
	for range 2 {
		seen := other.ContactAt()
		eventually(t, "the next contact", func() bool { return other.ContactAt() != seen })
		if age := boottime.Now() - other.ContactAt(); age < late {
			t.Errorf("a contact is %v old, its answer alone took %v", age, late)
		}
	}
}

// lateConn delivers late.
type lateConn struct {
	net.Conn

	late time.Duration
}

func (c lateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	<-time.After(c.late)
	return n, err
}

func TestHeartbeats(t *testing.T) {
	began := boottime.Now()
	f := mustFleet(t, 2, nil)
	leader := f.leader()
	other := f.follower(leader)
	if _, leads := other.Heard(leader.ID()); leads {
		t.Error("a follower claims to hear heartbeats")
	}
	eventually(t, "the follower's heartbeat is heard", func() bool {
		at, leads := leader.Heard(other.ID())
		sent := other.ContactAt()
		return leads && !at.IsZero() && sent >= began && sent <= boottime.Now()
	})
	if at, leads := leader.Heard(newID()); !leads || !at.IsZero() {
		t.Errorf("a node that says nothing was heard at %v", at)
	}
	if d := leader.LastContact(); d != 0 {
		t.Errorf("the leader's last contact was %v ago", d)
	}
	if d := other.LastContact(); d > time.Minute {
		t.Errorf("the follower's last contact was %v ago", d)
	}
}

// TestRefusedNodeHasNoContact refuses a node whose heartbeats the leader goes on to hear.
func TestRefusedNodeHasNoContact(t *testing.T) {
	f := mustFleet(t, 2, nil)
	leader := f.leader()
	other := f.follower(leader)
	var at time.Time
	eventually(t, "the follower is heard", func() bool {
		at, _ = leader.Heard(other.ID())
		return !at.IsZero() && other.ContactAt() > 0
	})
	if _, ok := leader.Refuse(other.ID(), at.Add(-1)); ok {
		t.Error("a node is refused that was heard since")
	}
	var began time.Duration
	var allow func()
	eventually(t, "the follower is refused", func() (ok bool) {
		at, _ = leader.Heard(other.ID())
		began = boottime.Now()
		allow, ok = leader.Refuse(other.ID(), at)
		return ok
	})
	for range 2 { // With the second one, the answer to the first would have arrived.
		eventually(t, "a refused heartbeat is heard", func() bool {
			again, _ := leader.Heard(other.ID())
			later := again.After(at)
			at = again
			return later
		})
	}
	if contact := other.ContactAt(); contact > began {
		t.Errorf("it has contact %v after it was refused", contact-began)
	}
	allow()
	eventually(t, "it has contact again", func() bool { return other.ContactAt() > began })
}

// TestTimersFitTheNetwork joins a server over a slow network. By itself it takes the
// timers of slow networks, but the operator decides.
func TestTimersFitTheNetwork(t *testing.T) {
	f := mustFleet(t, 1, nil)
	for profile, want := range map[string]string{
		cluster.ProfileAuto: cluster.ProfileDefault,
		cluster.ProfileLAN:  cluster.ProfileLAN,
	} {
		f.edit = func(cfg *cluster.Config) {
			cfg.Profile = profile
			quick := cfg.Dial
			cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				loop.Sleep(ctx, 2*timing.MaxRoundTrip)
				return quick(ctx, network, address)
			}
		}
		if got := f.mustAdd().Profile(); got != want {
			t.Errorf("with the profile %s the timers are those of %s", profile, got)
		}
	}
}

// TestLeaderSendsFewerHeartbeats hands the leadership over: the leader has the longer timeout, from
// which the time between its heartbeats follows, and the others that of followers.
func TestLeaderSendsFewerHeartbeats(t *testing.T) {
	f := mustFleet(t, 3, func(cfg *cluster.Config) { cfg.Profile = cluster.ProfileLAN })
	following, leading := cluster.LANTimeouts()
	check := func() {
		t.Helper()
		eventually(t, "each server has the timeout of its part", func() bool {
			for _, p := range f.peers {
				want := following
				if p.IsLeader() {
					want = leading
				}
				if p.HeartbeatTimeout() != want {
					return false
				}
			}
			return true
		})
	}
	check()
	other := f.follower(f.leader())
	if _, err := other.Transfer(t.Context(), other.ID()); err != nil {
		t.Fatal(err)
	}
	check()
}
