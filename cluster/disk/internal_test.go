package disk

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func TestWatchdog(t *testing.T) {
	const limit = 2 * time.Second
	tick := func(n int) time.Duration { return time.Duration(n) * WatchTick }
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
			w := &Watchdog{Now: func() time.Time { return start }}
			err := w.Look(start.Add(-WatchTick), limit)
			w.begin()
			err = errors.Join(err, w.Look(start, limit))
			for _, at := range test.looks {
				err = errors.Join(err, w.Look(start.Add(at), limit))
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
		all = append(all, time.Duration(i+1)*WatchTick)
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
	w := &Watchdog{Now: func() time.Time { return start }}
	for i := range 100 { // Ten seconds of writes that all end.
		w.begin()
		if err := w.Look(start.Add(time.Duration(i)*WatchTick), time.Second); err != nil {
			t.Fatal(err)
		}
		w.end()
	}
}

func TestLogCacheIsBounded(t *testing.T) {
	c := &Cache{LogStore: raft.NewInmemStore()}
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
	c := &Cache{LogStore: raft.NewInmemStore()}
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
