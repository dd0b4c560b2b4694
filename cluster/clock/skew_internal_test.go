package clock

import (
	"testing"
	"time"
)

// TestMeasuredClocks compares clocks by a call that takes some time.
func TestMeasuredClocks(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct{ ahead, took, sent, want time.Duration }{
		{0, 2 * time.Second, time.Second, 0},
		{0, 2 * time.Second, 2 * time.Second, 0}, // All of it was on the way back.
		{time.Hour, 2 * time.Second, time.Second, time.Hour},
		{-time.Hour, 2 * time.Second, time.Second, -time.Hour},
	} {
		there := now.Add(-test.ahead - test.sent)
		if got := difference(now, there, test.took); got != test.want {
			t.Errorf("%+v: got %s", test, got)
		}
	}
	var s skew
	for i, step := range []struct {
		ahead    time.Duration
		at       time.Duration
		off, say bool
	}{
		{time.Second, 0, false, false},
		{time.Hour, 0, true, true},
		{time.Hour, time.Minute, true, false},
		{time.Hour, 11 * time.Minute, true, true},
		{0, 12 * time.Minute, false, true},
		{0, 13 * time.Minute, false, false},
	} {
		if off, say := s.note(step.ahead, now.Add(step.at)); off != step.off || say != step.say {
			t.Errorf("step %d: off %t, said %t", i, off, say)
		}
	}
}

// TestClocksThatDrift checks that the operator gets one warning about a clock
// whose lasting difference exceeds the call's own time, and one notice when it
// is right again.
func TestClocksThatDrift(t *testing.T) {
	const ms = time.Millisecond
	var s skew
	for i, step := range []struct {
		ahead, took time.Duration
		drifts, say bool
	}{
		{490 * ms, 0, false, false},
		{600 * ms, 300 * ms, false, false}, // It may be 450 ms.
		{600 * ms, 300 * ms, false, false},
		{600 * ms, 300 * ms, false, false},
		{-600 * ms, 10 * ms, false, false},
		{-600 * ms, 10 * ms, false, false},
		{0, 10 * ms, false, false}, // It stopped.
		{-600 * ms, 10 * ms, false, false},
		{-700 * ms, 10 * ms, false, false},
		{-600 * ms, 10 * ms, true, true},
		{-600 * ms, 10 * ms, true, false},
		{-400 * ms, 10 * ms, true, false},
		{0, 1400 * ms, true, false}, // It may be 700 ms.
		{-600 * ms, 2000 * ms, true, false},
		{-240 * ms, 10 * ms, false, true},
		{0, 0, false, false},
		{time.Hour, 0, false, false}, // That is more than drift, and said elsewhere.
		{time.Hour, 0, false, false},
		{time.Hour, 0, false, false},
		{3000 * ms, 0, false, false},
		{3000 * ms, 0, false, false},
		{3000 * ms, 0, true, true},
		{time.Hour, 0, false, false},
		{0, 0, false, false},
	} {
		s.note(step.ahead, time.Unix(0, 0))
		if drifts, say := s.drift(step.took); drifts != step.drifts || say != step.say {
			t.Errorf("step %d: drifts %t, said %t", i, drifts, say)
		}
	}
}
