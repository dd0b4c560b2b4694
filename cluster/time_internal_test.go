package cluster

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/cluster/rpc"
	"berth/compute"
)

// noon is what time it really is when a test begins.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// testTime is the cluster's time on a machine whose clock a test sets.
type testTime struct {
	*clusterTime

	passed, shift time.Duration
}

func newTestTime(shift time.Duration) *testTime {
	t := &testTime{shift: shift}
	t.clusterTime = newClusterTime(func() time.Time { return t.real().Add(t.shift) })
	t.watch = func() time.Duration { return t.passed }
	return t
}

// real returns what time it really is.
func (t *testTime) real() time.Time { return noon.Add(t.passed) }

// wrong returns by how much the cluster's time is ahead of what it really is.
func (t *testTime) wrong() time.Duration { return t.now().Sub(t.real()) }

// goOn lets time pass, in which the leader hears voters whose clocks are ahead of
// the real time.
func (t *testTime) goOn(d time.Duration, others []time.Duration, voters int) {
	const step = time.Second
	for range d / step {
		t.passed += step
		t.lead(t.heard(others), voters)
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
			c.begin(noon.Add(-20 * time.Second))
			last := c.now()
			for range 600 {
				c.goOn(time.Second, test.others, test.voters)
				if now := c.now(); !now.After(last) {
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
		said   time.Time // By the leader before.
		state  time.Time
		others clocks
		voters int
		stamp  time.Time // Of the first entry.
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
			if got := c.stamp(); !got.Equal(test.stamp) {
				t.Errorf("the first entry is stamped %s, want %s", got, test.stamp)
			}
			c.begin(test.state)
			c.lead(c.heard(test.others), test.voters)
			if got := c.wrong(); got != test.want {
				t.Errorf("it is %s wrong, want %s", got, test.want)
			}
			select {
			case <-c.known:
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
		c := newCluster(Config{}.withDefaults())
		own := newTestTime(time.Hour)
		c.time = own.clusterTime
		own.begin(noon.Add(-24 * time.Hour))
		if _, known := own.lead(nil, 3); known {
			t.Fatal("one clock of three is a majority")
		}
		begun := time.Now()
		c.AwaitTime(t.Context())
		if took := time.Since(begun); took != timeWait || own.wrong() != time.Hour {
			t.Errorf("after %s it is %s wrong: there is only the clock of the machine", took, own.wrong())
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if c.AwaitTime(ctx); time.Since(begun) != timeWait {
			t.Error("it waited again")
		}
	})
}

// TestTimeThatALeaderDoesNotKnow starts three voters anew after a night. The leader
// hears one of them, answers it, and is gone: that one leads then and takes the
// clocks of those that are there, and not what the first leader went by.
func TestTimeThatALeaderDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const voters, night = 3, 8 * time.Hour
		var log bytes.Buffer
		start := func() (*Cluster, *testTime) {
			c := newCluster(Config{
				Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: prometheus.NewRegistry(),
			}.withDefaults())
			own := newTestTime(0)
			c.time, c.cfg.Now = own.clusterTime, own.clock
			return c, own
		}
		first, firstTime := start()
		firstTime.begin(noon.Add(-night))
		if _, known := firstTime.lead(firstTime.heard([]time.Duration{0}), voters); known {
			t.Fatal("two clocks of three are all")
		}
		second, secondTime := start()
		second.compareClocks(letter('A'), first.heartbeats.answer(), 0)
		if log.Len() > 0 {
			t.Errorf("it says %q", log.String())
		}
		secondTime.begin(noon.Add(-night))
		secondTime.lead(secondTime.heard([]time.Duration{0}), voters)
		second.AwaitTime(t.Context())
		if got := secondTime.wrong(); got != 0 {
			t.Fatalf("the cluster's time is %s", compute.AheadText(got))
		}
		third, thirdTime := start()
		third.compareClocks(letter('B'), second.heartbeats.answer(), 0)
		if at, known := thirdTime.agreed(); !known || !at.Equal(noon) {
			t.Errorf("once it is known a heartbeat is told %s, %t", at, known)
		}
	})
}

// TestClocksOfVoters has other nodes tell a leader what their clocks say.
func TestClocksOfVoters(t *testing.T) {
	for _, test := range []struct {
		name   string
		led    time.Duration // For how long it leads.
		ago    time.Duration // When it was heard.
		tells  bool
		served time.Duration // How long its heartbeat waited for its answer.
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
			h, now := c.heartbeats, noon
			h.now = func() time.Time { return now }
			now = noon.Add(-test.led)
			h.grace()
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

// TestTimeThatIsOff tells of a time that has far to go.
func TestTimeThatIsOff(t *testing.T) {
	var log bytes.Buffer
	c := newCluster(Config{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: prometheus.NewRegistry(),
	}.withDefaults())
	own := newTestTime(0)
	c.time = own.clusterTime
	own.follow(noon)
	for _, step := range []struct {
		shift time.Duration
		want  string
	}{
		{0, ""},
		{time.Hour, "1h0m0s behind and runs a tenth faster"},
		{0, "is that of most servers again"},
	} {
		log.Reset()
		own.shift = step.shift
		c.leadTime()
		if got := log.String(); !strings.Contains(got, step.want) || step.want == "" && got != "" {
			t.Errorf("with a clock %s: %q, want %q", compute.AheadText(step.shift), got, step.want)
		}
	}
}
