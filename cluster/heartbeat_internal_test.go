package cluster

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/cluster/rpc"
)

// TestAnswerWithoutTime answers a heartbeat before the cluster's time is
// agreed. A node that took the time from the answer would later lead with it as
// the cluster's.
func TestAnswerWithoutTime(t *testing.T) {
	c := newCluster(Config{Registerer: prometheus.NewRegistry()}.withDefaults())
	c.clock.Begin(time.Now().Add(-8 * time.Hour))
	if answer := c.heartbeats.answer(); answer != nil {
		t.Errorf("it answers %x", answer)
	}
}

// TestClocksOfVoters has other nodes report their clocks to a leader.
func TestClocksOfVoters(t *testing.T) {
	for _, test := range []struct {
		name   string
		led    time.Duration // How long it has led.
		ago    time.Duration // When the node was heard.
		tells  bool
		served time.Duration // How long its heartbeat waited for the answer.
		known  bool
	}{
		{"heard", time.Hour, time.Second, true, time.Second, true},
		{"in the term before", time.Second, 5 * time.Second, true, 0, false},
		{"silent", time.Hour, time.Minute, true, 0, false},
		{"of an older version", time.Hour, time.Second, false, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log bytes.Buffer
			c := newCluster(Config{
				Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: prometheus.NewRegistry(),
			}.withDefaults())
			noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
			h, now := c.heartbeats, noon
			h.now = func() time.Time { return now }
			now = noon.Add(-test.led)
			h.startTerm()
			now = noon.Add(-test.ago)
			beat := heartbeat{}
			if test.tells {
				beat.At = now.Add(-test.served).Add(time.Hour).UnixMilli()
			}
			h.keep(letter('B'), h.from(rpc.Peer{ID: letter('B')}, beat, now.Add(-test.served)))
			now = noon
			clock, known := h.clockOf(letter('B'))
			if known != test.known || known && !clock.Equal(noon.Add(time.Hour)) {
				t.Errorf("its clock says %s, %t", clock, known)
			}
		})
	}
}
