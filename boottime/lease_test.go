package boottime_test

import (
	"testing"
	"time"

	"berth/boottime"
)

// TestLease holds that late words do not lengthen a lease, that none shortens
// it, and that none brings it back.
func TestLease(t *testing.T) {
	l := boottime.Lease{Grace: time.Minute}
	const at = time.Hour
	for _, step := range []struct {
		name    string
		contact time.Duration
		now     time.Duration
		until   time.Duration
		renewed bool
	}{
		{"the first contact", at - 10*time.Second, at, at + 50*time.Second, true},
		{"an older one", at - 20*time.Second, at, at + 50*time.Second, false},
		{"one in the future", at + time.Hour, at, at + time.Minute, true},
		{"one that came late", at + 20*time.Second, at + 59*time.Second, at + 80*time.Second, true},
		{"one at the end", at + 80*time.Second, at + 80*time.Second, at + 80*time.Second, false},
		{"one before the end that is heard after it", at + 79*time.Second, at + 2*time.Minute, at + 80*time.Second, false},
	} {
		if renewed := l.Renew(step.contact, step.now); renewed != step.renewed || l.Until() != step.until {
			t.Errorf("%s: renewed %v until %v, want %v until %v", step.name, renewed, l.Until(), step.renewed, step.until)
		}
		if over := step.now >= step.until; l.Over(step.now) != over {
			t.Errorf("%s: over %v, want %v", step.name, !over, over)
		}
	}
}

// TestReached holds that an answer which waited lengthens nothing.
func TestReached(t *testing.T) {
	if got := boottime.Reached(time.Second, time.Minute); got != time.Second {
		t.Errorf("the leader was asked at %v, answered at %v, and was reached at %v", time.Second, time.Minute, got)
	}
}

func TestLeaseWithoutEnd(t *testing.T) {
	var l boottime.Lease
	if l.Renew(time.Second, time.Hour) || l.Over(1000*time.Hour) {
		t.Error("a lease without a grace ends")
	}
	if l = (boottime.Lease{Grace: time.Second}); l.Over(time.Hour) {
		t.Error("a lease is over before the first contact")
	}
}

// TestLeaseSoonAfterBoot holds that an end before the boot is an end: a machine
// that has just started may have been told of a contact longer ago.
func TestLeaseSoonAfterBoot(t *testing.T) {
	l := boottime.Lease{Grace: time.Minute}
	if !l.Renew(-107*time.Second, 13*time.Second) || !l.Over(13*time.Second) {
		t.Errorf("a lease that ended %v after boot goes on", l.Until())
	}
	if l.Renew(13*time.Second, 13*time.Second) {
		t.Error("a lease that was over came back")
	}
}
