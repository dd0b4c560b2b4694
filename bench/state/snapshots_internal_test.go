package state

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestParseSnapshot(t *testing.T) {
	for name, want := range map[string]uint64{
		"2-100-1700000000000": 100,
		"2-100":               0,
		"2-100-17x":           0,
		"2-100-17-3":          0,
		"permTest":            0,
	} {
		got, ok := parseSnapshot(name)
		if ok != (want > 0) || ok && (got.index != want || got.begun.UnixMilli() != 1_700_000_000_000) {
			t.Errorf("%s: %+v, %v, want %d", name, got, ok, want)
		}
	}
}

func TestWatchEndsBehindASnapshot(t *testing.T) {
	const rate, writes = 50, 4 * time.Second
	for _, c := range []struct {
		name    string
		entries int
		want    time.Duration // From the snapshot's beginning.
	}{
		{"enough entries", 1000, 20 * time.Second},
		{"entries that come slowly", 100_000, writes + tailLimit},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := t.TempDir()
			mustSnapshot(t, data, "2-100-1")
			synctest.Test(t, func(t *testing.T) {
				seen, err := newWatch(data, time.Now)
				if err != nil || seen.covered != 100 {
					t.Fatalf("covered %d: %v", seen.covered, err)
				}
				start := time.Now()
				begun := start.Add(10 * time.Second)
				at := func(when time.Time) uint64 { return 100 + uint64(when.Sub(start)/(time.Second/rate)) }
				go func() {
					name := fmt.Sprintf("2-%d-%d", at(begun), begun.UnixMilli())
					<-time.After(10 * time.Second)
					unfinished := mustSnapshot(t, data, name+".tmp")
					<-time.After(writes)
					if err := os.Rename(unfinished, filepath.Join(filepath.Dir(unfinished), name)); err != nil {
						t.Error(err)
					}
				}()
				err = seen.until(t.Context(), c.entries, func(context.Context) (uint64, error) {
					return at(time.Now()), nil
				})
				took := time.Since(begun)
				if err != nil || took < c.want || took > c.want+indexEvery+pollEvery {
					t.Errorf("it ended after %v, want %v: %v", took, c.want, err)
				}
				if len(seen.written) != 1 || seen.covered != at(begun) {
					t.Fatalf("%d were written, the newest goes to %d", len(seen.written), seen.covered)
				}
				if d := seen.took(); d < writes || d > writes+2*pollEvery {
					t.Errorf("it took %v, want %v", d, writes)
				}
				for when, want := range map[time.Duration]bool{
					-time.Millisecond: false, 0: true, writes - 1: true, writes + 2*pollEvery: false,
				} {
					if got := seen.during(begun.Add(when)); got != want {
						t.Errorf("%v after its beginning it is written: %v", when, got)
					}
				}
			})
		})
	}
}

func TestWatchEndsWithoutASnapshot(t *testing.T) {
	data := t.TempDir()
	mustSnapshot(t, data, "2-100-1.tmp")
	synctest.Test(t, func(t *testing.T) {
		var late time.Duration
		seen, err := newWatch(data, func() time.Time {
			late += writeLimit / 2 // Each poll takes long.
			return time.Now().Add(late)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := seen.until(t.Context(), 1, nil); err != nil || len(seen.written) != 0 || seen.open == nil {
			t.Errorf("%d were written, %v is open: %v", len(seen.written), seen.open, err)
		}
	})
}

// mustSnapshot creates the directory of a snapshot.
func mustSnapshot(t *testing.T, data, name string) string {
	t.Helper()
	dir := filepath.Join(data, "raft", "snapshots", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Error(err)
	}
	return dir
}
