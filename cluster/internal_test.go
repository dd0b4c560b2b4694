package cluster

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

func TestWatchdog(t *testing.T) {
	const limit = 2 * time.Second
	tick := func(n int) time.Duration { return time.Duration(n) * watchdogTick }
	for _, test := range []struct {
		name  string
		looks []time.Duration // Since the write began.
		hangs bool
	}{
		{"a quick look", []time.Duration{tick(1)}, false},
		{"just within the limit", ticks(20), false},
		{"over the limit", ticks(24), true},
		{"the process stood still", []time.Duration{tick(1), tick(2), time.Hour, time.Hour + tick(1)}, false},
		{"stood still, then hangs", append([]time.Duration{tick(1)}, after(time.Hour, ticks(24))...), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			start := time.Now()
			w := &watchdog{now: func() time.Time { return start }}
			w.look(start.Add(-watchdogTick), limit)
			w.begin()
			w.look(start, limit)
			var err error
			for _, at := range test.looks {
				err = errors.Join(err, w.look(start.Add(at), limit))
			}
			if (err != nil) != test.hangs {
				t.Errorf("got %v", err)
			}
		})
	}
}

func ticks(n int) []time.Duration {
	var all []time.Duration
	for i := range n {
		all = append(all, time.Duration(i+1)*watchdogTick)
	}
	return all
}

func after(start time.Duration, all []time.Duration) []time.Duration {
	moved := make([]time.Duration, len(all))
	for i, d := range all {
		moved[i] = start + d
	}
	return moved
}

func TestWatchdogForgetsWhatEnded(t *testing.T) {
	start := time.Now()
	w := &watchdog{now: func() time.Time { return start }}
	for i := range 100 { // Ten seconds of writes that all end.
		w.begin()
		if err := w.look(start.Add(time.Duration(i)*watchdogTick), time.Second); err != nil {
			t.Fatal(err)
		}
		w.end()
	}
}

func TestLogCacheIsBounded(t *testing.T) {
	c := &logCache{LogStore: raft.NewInmemStore()}
	const size = 400 << 10
	for i := uint64(1); i <= 100; i++ {
		if err := c.StoreLog(&raft.Log{Index: i, Data: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
		if c.bytes > cacheBytes {
			t.Fatalf("after entry %d the cache holds %d bytes", i, c.bytes)
		}
	}
	if c.bytes < cacheBytes/2 || c.high != 100 || c.low <= 1 {
		t.Errorf("it holds %d bytes, entries %d to %d", c.bytes, c.low, c.high)
	}
	var l raft.Log
	for _, i := range []uint64{1, c.low - 1, c.low, 100} {
		if err := c.GetLog(i, &l); err != nil || l.Index != i {
			t.Errorf("entry %d: %d, %v", i, l.Index, err)
		}
	}
}

func TestLogCacheForgetsOverruledEntries(t *testing.T) {
	c := &logCache{LogStore: raft.NewInmemStore()}
	for i := uint64(1); i <= 2*cacheEntries; i++ {
		if err := c.StoreLog(&raft.Log{Index: i, Term: 1}); err != nil {
			t.Fatal(err)
		}
	}
	last := uint64(2 * cacheEntries)
	if err := c.DeleteRange(1, 10); err != nil {
		t.Fatal(err)
	}
	if c.high != last {
		t.Error("compaction far behind emptied the cache")
	}
	if err := c.DeleteRange(last-10, last); err != nil {
		t.Fatal(err)
	}
	var l raft.Log
	if err := c.GetLog(last, &l); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("an entry that was removed: %+v, %v", l, err)
	}
	if err := c.StoreLog(&raft.Log{Index: last - 10, Term: 2}); err != nil {
		t.Fatal(err)
	}
	if err := c.GetLog(last-10, &l); err != nil || l.Term != 2 {
		t.Errorf("an entry that was overruled: %+v, %v", l, err)
	}
}

func TestLaneBatchesBehindWhatIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sizes []int
		release := make(chan struct{})
		l := &lane{spawn: func(fn func()) { go fn() }, send: func(batch []*proposal) {
			mu.Lock()
			sizes = append(sizes, len(batch))
			mu.Unlock()
			<-release
			finish(batch, outcome{Fate: fateCommitted})
		}}
		const extra = 600
		var all []*proposal
		for range laneBatches + extra {
			p := &proposal{frame: make([]byte, 100), done: make(chan outcome, 1)}
			all = append(all, p)
			if !l.add(p) {
				t.Fatal("full")
			}
			if len(all) <= laneBatches {
				synctest.Wait() // The first ones go at once.
			}
		}
		abandoned := all[len(all)-1]
		if !abandoned.abandon() || all[0].abandon() {
			t.Error("only what waits can be abandoned")
		}
		close(release)
		synctest.Wait()
		if len(sizes) < laneBatches+3 || sizes[0] != 1 || sizes[laneBatches-1] != 1 || sizes[laneBatches] != batchFrames {
			t.Errorf("batches of %v", sizes)
		}
		for i, p := range all[:len(all)-1] {
			if o := <-p.done; o.Fate != fateCommitted {
				t.Fatalf("proposal %d: %+v", i, o)
			}
		}
		if len(abandoned.done) != 0 || l.active != 0 || l.bytes != 0 {
			t.Errorf("left over: %d outcomes, %d senders, %d bytes", len(abandoned.done), l.active, l.bytes)
		}
	})
}

func TestLaneIsBounded(t *testing.T) {
	stuck := make(chan struct{})
	l := &lane{spawn: func(fn func()) { go fn() }, send: func([]*proposal) { <-stuck }}
	defer close(stuck)
	n := 0
	for l.add(&proposal{frame: make([]byte, 1<<20)}) {
		n++
	}
	if n < 60 || n > 80 {
		t.Errorf("it took %d MiB", n)
	}
}

func TestARoundServesOnlyWhoCameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count, begun := 0, make(chan struct{})
		release := make(chan struct{})
		r := &rounds{spawn: func(fn func()) { go fn() }, do: func() (uint64, error) {
			count++
			begun <- struct{}{}
			<-release
			return uint64(count), nil
		}}
		join := func(out *uint64) func() {
			return func() { *out, _ = r.join(context.Background()) }
		}
		var first, second, third uint64
		go join(&first)()
		<-begun
		// The first round is under way: it may not serve these.
		go join(&second)()
		go join(&third)()
		synctest.Wait()
		release <- struct{}{}
		<-begun
		release <- struct{}{}
		synctest.Wait()
		if first != 1 || second != 2 || third != 2 || count != 2 {
			t.Errorf("served by rounds %d, %d, %d of %d", first, second, third, count)
		}
	})
}

func TestJudgeApplyErrors(t *testing.T) {
	for err, want := range map[error]fate{
		raft.ErrNotLeader:                    fateNothing,
		raft.ErrEnqueueTimeout:               fateNothing,
		raft.ErrLeadershipTransferInProgress: fateNothing,
		raft.ErrAbortedByRestore:             fateNothing,
		raft.ErrLeadershipLost:               fateUnknown,
		raft.ErrRaftShutdown:                 fateUnknown,
		errors.New("no space left"):          fateUnknown,
	} {
		if got := fateOf(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

func TestLibraryLinesBecomeRecords(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	raftLogger(logger).Error("failed to make requestVote RPC", "target", "x", "error", errors.New("refused"))
	raftLogger(logger).Info("entering follower state", "follower", "me")
	raftLogger(logger).Debug("accepted connection")
	w := gossipLogger(logger)
	w.Write([]byte("[WARN] memberlist: Refuting a suspect message (from: n2)\n"))
	w.Write([]byte("[DEBUG] memberlist: Stream connection from=1\n"))
	for _, want := range []string{
		`level=WARN msg="raft failed to make requestvote rpc" err="target=x error=refused"`,
		`level=INFO msg="raft entering follower state" err="follower=me"`,
		`level=WARN msg="memberlist refuting a suspect message (from" err=n2)`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing %s in:\n%s", want, &out)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Errorf("%d records:\n%s", n, &out)
	}
}

func TestAdvertisedHost(t *testing.T) {
	for _, test := range []struct{ configured, listening, want string }{
		{"node.example", "0.0.0.0", "node.example"},
		{"", "127.0.0.1", "127.0.0.1"},
		{"", "10.1.2.3", "10.1.2.3"},
	} {
		got, err := advertisedHost(test.configured, net.ParseIP(test.listening))
		if err != nil || got != test.want {
			t.Errorf("advertisedHost(%q, %s) = %q, %v; want %q", test.configured, test.listening, got, err, test.want)
		}
	}
	if got := joinPort("::1", 6471); got != "[::1]:6471" {
		t.Errorf("joinPort gives %s", got)
	}
}

func TestKeyringIsChecked(t *testing.T) {
	for _, text := range []string{
		"", "{}", `{"keys":[]}`, `{"keys":["c2hvcnQ="]}`,
		`{"keys":[` + strings.Repeat(`"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",`, 8) + `"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]}`,
	} {
		if keys, err := parseKeyring([]byte(text)); err == nil {
			t.Errorf("%s: %d keys", text, len(keys))
		}
	}
}
