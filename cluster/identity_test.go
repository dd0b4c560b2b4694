package cluster_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/cluster"
	"berth/cluster/pki"
)

// clock is a clock that a test moves, and stops.
type clock struct {
	offset atomic.Int64
	stands atomic.Pointer[time.Time]
}

func (c *clock) now() time.Time {
	if at := c.stands.Load(); at != nil {
		return *at
	}
	return time.Now().Add(time.Duration(c.offset.Load()))
}

func (c *clock) move(d time.Duration) { c.offset.Add(int64(d)) }

// stop has the clock stand at an instant.
func (c *clock) stop(at time.Time) { c.stands.Store(&at) }

func TestCertificatesAreRenewed(t *testing.T) {
	var time clock
	f := mustFleet(t, 2, func(c *cluster.Config) { c.Now = time.now })
	leader := f.leader()
	other := f.follower(leader)
	before := other.Serial()
	time.move(35 * hour)
	other.RenewIfDue(t.Context())
	if other.Serial() != before {
		t.Error("renewed before half of its life was over")
	}
	time.move(2 * hour)
	for _, p := range f.peers {
		p.RenewIfDue(t.Context())
	}
	if other.Serial() == before {
		t.Fatal("not renewed when half of its life was over")
	}
	// New handshakes in both directions use the new certificate, without a
	// restart.
	for _, ends := range [][2]*peer{{leader, other}, {other, leader}} {
		conn, err := ends[0].DialRaft(ends[1].ID())
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	time.move(40 * hour) // The first certificates have expired, the new ones have not.
	if got := mustRoundTrip(t, leader, other); got != 1 {
		t.Errorf("read %d", got)
	}
}

const (
	hour   = time.Hour
	second = time.Second
)

func mustRoundTrip(t *testing.T, from, to *peer) int64 {
	t.Helper()
	from.mustPropose(t, toyCommand{Op: "round trip", Key: "k", Value: 1})
	return to.mustRead(t, "k")
}

func TestExpiredCertificateIsRefusedAndReplacedAtStart(t *testing.T) {
	var time clock
	f := mustFleet(t, 2, func(c *cluster.Config) { c.Now = time.now })
	leader := f.leader()
	other := f.follower(leader)
	time.move(80 * hour)
	leader.RenewIfDue(t.Context())
	if conn, err := other.DialRaft(leader.ID()); err == nil {
		conn.Close()
		t.Error("a certificate that has expired was accepted")
	} else if !strings.Contains(err.Error(), "expired") {
		t.Errorf("refused because of %v", err)
	}
	for i, p := range f.peers {
		if p == other {
			other = f.mustRestart(i)
		}
	}
	if got := mustRoundTrip(t, leader, other); got != 1 {
		t.Errorf("read %d", got)
	}
}

func TestConnectionEndsWithItsCertificate(t *testing.T) {
	var time clock
	f := mustFleet(t, 2, func(c *cluster.Config) { c.Now = time.now })
	leader := f.leader()
	// The clock stands, so that both certificates have a second left however long
	// the handshake takes. The connection's timer runs all the same.
	now := time.now().Truncate(second)
	time.stop(now)
	for _, p := range f.peers {
		if err := p.Reissue(); err != nil {
			t.Fatal(err)
		}
	}
	time.stop(now.Add(pki.LeafLifetime - second))
	conn, err := f.follower(leader).DialRaft(leader.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("raft spoke first")
		}
	case <-t.Context().Done():
	case <-afterPatience():
		t.Error("the connection goes on")
	}
}
