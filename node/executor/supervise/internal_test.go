package supervise

import (
	"testing"
	"time"

	"berth/boottime"
)

// TestLateContact holds that a word of contact which lay in the socket while the
// supervisor stood still does not lengthen the grace: what counts is when the
// leader was reached, not when the word is read, and after the end nothing does.
func TestLateContact(t *testing.T) {
	timer, err := newTimer()
	if err != nil {
		t.Fatal(err)
	}
	defer timer.close()
	const grace = time.Minute
	s := &supervisor{spec: &Spec{DisconnectGrace: grace}, contact: timer}
	now := boottime.Now()
	touch := func(at time.Duration) time.Duration {
		t.Helper()
		if err := s.touch(at); err != nil {
			t.Fatal(err)
		}
		return s.reach
	}
	if got := touch(now - 10*time.Second); got != now+50*time.Second {
		t.Errorf("contact 10 s ago reaches %v from now, want 50 s", got-now)
	}
	if got := touch(now - 20*time.Second); got != now+50*time.Second {
		t.Errorf("an older contact moves the end to %v from now", got-now)
	}
	if got := touch(now + time.Hour); got > boottime.Now()+grace {
		t.Errorf("contact in the future reaches %v from now", got-now)
	}
	s.reach = now - time.Nanosecond // The end has come, and the timer was not heard yet.
	if got := touch(boottime.Now()); got != now-time.Nanosecond {
		t.Errorf("a word after the end put it off by %v", got-now)
	}
}
