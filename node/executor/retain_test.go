package executor

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"berth/compute"
	"berth/node/executor/live"
	"berth/node/executor/prepare"
)

// TestPruneArchives checks that output stays until it is archived, except output that
// exceeds the limits of size by far, and that nothing else is archived.
func TestPruneArchives(t *testing.T) {
	now := time.Now()
	failed := errors.New("the disks are full")
	type answer struct {
		done bool
		err  error
	}
	for _, test := range []struct {
		name   string
		age    time.Duration
		bytes  int
		soon   bool    // After the start.
		answer *answer // Nil: it is not to be archived.
		kept   bool
	}{
		{"within the limits", 23 * time.Hour, 9, false, nil, true},
		{"not known to be archived", 25 * time.Hour, 9, false, &answer{false, nil}, true},
		{"cannot be archived", 25 * time.Hour, 9, false, &answer{false, failed}, true},
		{"archived", 25 * time.Hour, 9, false, &answer{true, nil}, false},
		{"much too old, cannot be archived", 2500 * time.Hour, 9, false, &answer{false, failed}, true},
		{"too large, cannot be archived", time.Hour, 1100, false, &answer{false, failed}, true},
		{"much too large, at the start", time.Hour, 1300, true, &answer{false, failed}, true},
		{"much too large, cannot be archived", time.Hour, 1300, false, &answer{false, failed}, false},
		{"much too large, not known to be archived", time.Hour, 1300, false, &answer{false, nil}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var mu sync.Mutex
			var asked int
			r := &retention{log: slog.New(slog.DiscardHandler), reaped: newMetrics(nil).reaped, dirs: live.NewDirs(t.TempDir(), nil), cfg: &Config{
				Retain: Retain{Age: 24 * time.Hour, Bytes: 1000},
				Config: prepare.Config{Now: func() time.Time { return now }},
				Archive: func(_ context.Context, execution compute.ExecutionID, epoch uint64) (bool, error) {
					mu.Lock()
					defer mu.Unlock()
					if asked++; execution.UUID != (compute.UUID{1}) || epoch != 2 || test.answer == nil {
						t.Errorf("attempt %d of %s is archived", epoch, execution)
						return false, nil
					}
					return test.answer.done, test.answer.err
				},
			}}
			k := live.Key{Execution: compute.ExecutionID{UUID: compute.UUID{1}}, Epoch: 2}
			dir := r.dirs.Dir(k)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := r.dirs.File(k, "reported")
			if err := os.WriteFile(path, make([]byte, test.bytes), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, now, now.Add(-test.age)); err != nil {
				t.Fatal(err)
			}
			if test.soon {
				r.opened = now.Add(-time.Minute)
			}
			err := r.prune(t.Context())
			if want := test.answer != nil && test.answer.err != nil; (err != nil) != want {
				t.Errorf("error %v", err)
			}
			if _, err := os.Stat(dir); (err == nil) != test.kept {
				t.Errorf("kept is %v, want %v", err == nil, test.kept)
			}
			if (asked > 0) != (test.answer != nil) {
				t.Errorf("asked %d times", asked)
			}
		})
	}
}
