package clock

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
)

// noon is the real time when a test begins.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// testTime is the cluster's time on a machine whose clock a test sets.
type testTime struct {
	*Clock

	passed, shift time.Duration
	log           bytes.Buffer
}

func newTestTime(shift time.Duration) *testTime {
	t := &testTime{shift: shift}
	t.Clock = New(Config{
		Local:  func() time.Time { return t.real().Add(t.shift) },
		Logger: slog.New(slog.NewTextHandler(&t.log, nil)), Ahead: prometheus.NewGauge(prometheus.GaugeOpts{}),
	})
	t.watch = func() time.Duration { return t.passed }
	return t
}

// real returns the real time.
func (t *testTime) real() time.Time { return noon.Add(t.passed) }

// wrong returns by how much the cluster's time is ahead of the real time.
func (t *testTime) wrong() time.Duration { return t.Now().Sub(t.real()) }

// goOn lets time pass, in which the leader hears voters whose clocks are ahead of
// the real time.
func (t *testTime) goOn(d time.Duration, others []time.Duration, voters int) {
	const step = time.Second
	for range d / step {
		t.passed += step
		t.steer(t.heard(others), voters)
	}
}

// heard returns by how much clocks are ahead of the cluster's time.
func (t *testTime) heard(others []time.Duration) (ahead []time.Duration) {
	for _, o := range others {
		ahead = append(ahead, o-t.wrong())
	}
	return ahead
}

// TestClockOfALeader sets the clock of a leader, or others', while the time is
// known: it goes on as on a stopwatch, and follows most clocks slowly.
func TestClockOfALeader(t *testing.T) {
	const hour, minute = time.Hour, time.Minute
	type clocks = []time.Duration
	for _, test := range []struct {
		name   string
		own    time.Duration
		others clocks
		voters int
		want   time.Duration // By how much the time is wrong after ten minutes.
	}{
		{"right", 0, clocks{0, 0}, 3, 0},
		{"an hour ahead", hour, clocks{0, 0}, 3, 0},
		{"an hour behind", -hour, clocks{0, 0}, 3, 0},
		{"an hour ahead, another one behind", hour, clocks{0, -hour}, 3, 0},
		{"an hour ahead, and one of three is silent", hour, clocks{0}, 3, 0},
		{"an hour ahead, and all are silent", hour, nil, 3, 0},
		{"an hour behind one other", -hour, clocks{0}, 2, 0},
		{"a second ahead", time.Second, clocks{0, 0}, 3, time.Second},
		{"alone and ahead", hour, nil, 1, minute},
		{"alone and behind", -hour, nil, 1, -minute},
		{"most are ahead", hour, clocks{hour, 0}, 3, minute},
		{"another one is ahead", 0, clocks{hour, 0}, 3, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newTestTime(test.own)
			c.follow(noon)
			c.Begin(noon.Add(-20 * time.Second))
			last := c.Now()
			for range 600 {
				c.goOn(time.Second, test.others, test.voters)
				if now := c.Now(); !now.After(last) {
					t.Fatalf("it went from %s to %s", last, now)
				} else {
					last = now
				}
			}
			if got := c.wrong(); (got - test.want).Abs() > 200*time.Millisecond {
				t.Errorf("it is %s wrong, want %s", got, test.want)
			}
		})
	}
}

// TestBeginOfATerm is from when a leader counts.
func TestBeginOfATerm(t *testing.T) {
	const hour, day = time.Hour, 24 * time.Hour
	type clocks = []time.Duration
	for _, test := range []struct {
		name   string
		own    time.Duration
		said   time.Time // Time of the previous leader.
		state  time.Time
		others clocks
		voters int
		stamp  time.Time // Time of the first entry.
		want   time.Duration
		known  bool
	}{
		{"after another leader", hour, noon, noon.Add(-time.Minute), nil, 3, noon, 0, true},
		{"the state is ahead", -hour, noon, noon.Add(time.Second), nil, 3, noon, time.Second, true},
		{"the first of all", 0, time.Time{}, time.Time{}, nil, 1, time.Time{}, 0, true},
		{"all come back", 0, time.Time{}, noon.Add(-day), clocks{0, 0}, 3, time.Time{}, 0, true},
		{"all come back, its clock is ahead", hour, time.Time{}, noon.Add(-day), clocks{0, 0}, 3, time.Time{}, 0, true},
		{"all come back, its clock is behind", -hour, time.Time{}, noon.Add(-day), clocks{0, 0}, 3, time.Time{}, 0, true},
		{"not all are heard yet", hour, time.Time{}, noon.Add(-day), clocks{0}, 3, time.Time{}, -day, false},
		{"the state is ahead of all", 0, time.Time{}, noon.Add(hour), clocks{0, 0}, 3, time.Time{}, hour, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newTestTime(test.own)
			if !test.said.IsZero() {
				c.follow(test.said)
			}
			if got := c.Stamp(); !got.Equal(test.stamp) {
				t.Errorf("the first entry is stamped %s, want %s", got, test.stamp)
			}
			c.Begin(test.state)
			c.steer(c.heard(test.others), test.voters)
			if got := c.wrong(); got != test.want {
				t.Errorf("it is %s wrong, want %s", got, test.want)
			}
			select {
			case <-c.agreed:
			default:
				if test.known {
					t.Error("it is not known")
				}
				return
			}
			if !test.known {
				t.Error("it is known")
			}
		})
	}
}

// TestAwaitTime has a leader wait for clocks that do not come.
func TestAwaitTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := newTestTime(time.Hour)
		own.Begin(noon.Add(-24 * time.Hour))
		if _, known := own.steer(nil, 3); known {
			t.Fatal("one clock of three is a majority")
		}
		begun := time.Now()
		own.Await(t.Context())
		if took := time.Since(begun); took != awaitFor || own.wrong() != time.Hour {
			t.Errorf("after %s it is %s wrong: there is only the clock of the machine", took, own.wrong())
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if own.Await(ctx); time.Since(begun) != awaitFor {
			t.Error("it waited again")
		}
	})
}

// TestTimeThatIsOff tells of a time that has far to go.
func TestTimeThatIsOff(t *testing.T) {
	own := newTestTime(0)
	own.follow(noon)
	for _, step := range []struct {
		shift time.Duration
		want  string
	}{
		{0, ""},
		{time.Hour, "1h0m0s behind"},
		{0, "agrees with most servers' clocks again"},
	} {
		own.log.Reset()
		own.shift = step.shift
		own.Steer()
		if got := own.log.String(); !strings.Contains(got, step.want) || step.want == "" && got != "" {
			t.Errorf("with a clock %s: %q, want %q", compute.AheadText(step.shift), got, step.want)
		}
	}
}

// TestTimeThatALeaderDoesNotKnow restarts three voters after a night. The leader
// hears one of them and is gone before the time is agreed: the next leader uses
// the clocks of those that are there, and not the first leader's time.
func TestTimeThatALeaderDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const voters, night = 3, 8 * time.Hour
		first, second, third := newTestTime(0), newTestTime(0), newTestTime(0)
		first.Begin(noon.Add(-night))
		if _, known := first.steer(first.heard([]time.Duration{0}), voters); known {
			t.Fatal("two clocks of three are all")
		}
		if _, known := first.Agreed(); known {
			t.Fatal("the first leader reports a time that is not agreed")
		}
		second.Begin(noon.Add(-night))
		second.steer(second.heard([]time.Duration{0}), voters)
		second.Await(t.Context())
		if got := second.wrong(); got != 0 {
			t.Fatalf("the cluster's time is %s", compute.AheadText(got))
		}
		at, known := second.Agreed()
		if !known {
			t.Fatal("the second leader does not know the time")
		}
		third.Follow(compute.NodeID{}, at, 0)
		if at, known := third.Agreed(); !known || !at.Equal(noon) {
			t.Errorf("a follower knows %s, %t", at, known)
		}
	})
}
