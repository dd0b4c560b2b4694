package timing_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/cluster/timing"
	"berth/loop"
)

func TestFast(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name string
		m    timing.Measured
		fast bool
	}{
		{"one room", timing.Measured{Fsync: 2 * ms, RoundTrip: ms / 2, Servers: 2, Asked: 2}, true},
		{"one does not answer", timing.Measured{Fsync: 2 * ms, RoundTrip: ms / 2, Servers: 1, Asked: 2}, false},
		{"none answers", timing.Measured{Fsync: 2 * ms, Asked: 2}, false},
		{"the only server", timing.Measured{Fsync: 2 * ms}, true},
		{"at the limits", timing.Measured{Fsync: timing.MaxFsync, RoundTrip: timing.MaxRoundTrip, Servers: 1, Asked: 1}, true},
		{"spinning disk under load", timing.Measured{Fsync: 45 * ms, RoundTrip: ms, Servers: 2, Asked: 2}, false},
		{"two regions", timing.Measured{Fsync: 2 * ms, RoundTrip: 40 * ms, Servers: 2, Asked: 2}, false},
	} {
		if got := c.m.Fast(); got != c.fast {
			t.Errorf("%s: fast is %t", c.name, got)
		}
	}
}

// TestMeasure measures servers of which one is far, one is down and the machine of one
// is gone.
func TestMeasure(t *testing.T) {
	const far = 30 * time.Millisecond
	dial := func(ctx context.Context, _, address string) (net.Conn, error) {
		switch address {
		case "down:1":
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		case "gone:1":
			return nil, errors.New("no route to host")
		case "far:1":
			loop.Sleep(ctx, far)
		}
		ours, theirs := net.Pipe()
		theirs.Close()
		return ours, nil
	}
	dir := t.TempDir()
	m, err := timing.Measure(t.Context(), dir, []string{"near:1", "far:1", "down:1", "gone:1"}, dial)
	if err != nil {
		t.Fatal(err)
	}
	if m.Servers != 3 || m.Asked != 4 || m.RoundTrip < far || m.Fsync <= 0 || m.Fast() {
		t.Errorf("measured %+v", m)
	}
	if text := m.String(); !strings.Contains(text, "3 of 4 servers answered") {
		t.Error(text)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestMeasureWithoutADisk(t *testing.T) {
	m, err := timing.Measure(t.Context(), "/nonexistent", nil, nil)
	if err == nil {
		t.Errorf("measured %+v on no disk", m)
	}
}
