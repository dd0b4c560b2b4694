package cluster_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/cluster"
)

// clock is a clock that a test moves.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time       { return time.Now().Add(time.Duration(c.offset.Load())) }
func (c *clock) move(d time.Duration) { c.offset.Add(int64(d)) }

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

const hour = time.Hour

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
	time.move(72*hour - 3*hour/3600) // Three seconds are left.
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
