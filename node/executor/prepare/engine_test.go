package prepare

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// fakeEngine answers probes as a test says.
type fakeEngine struct {
	hangs, refuses atomic.Bool

	asked, lost atomic.Int64 // Probes, and those after one without an answer.
}

func (f *fakeEngine) ask(ctx context.Context, silent bool) error {
	f.asked.Add(1)
	if silent {
		f.lost.Add(1)
	}
	if f.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if f.refuses.Load() {
		return errors.New("connection refused")
	}
	return nil
}

// TestEngineWatch follows an engine that stops, hangs and comes back. A fault stays the same
// while it lasts, and is logged once.
func TestEngineWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := &fakeEngine{}
		w := &engineWatch{
			ask: f.ask, now: time.Now, log: slog.New(slog.NewTextHandler(&log, nil)), silent: newMetrics(nil).silent,
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); w.run(ctx) }()
		begun := time.Now()
		wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() } //nolint:forbidigo // The bubble's clock.
		since := func(d time.Duration) string {
			return "the Docker engine has not answered since " + begun.Add(d).UTC().Format("2006-01-02T15:04:05.000Z")
		}
		check := func(want string) {
			t.Helper()
			gauge := 0.0
			if want != "" {
				gauge = 1
			}
			if got := w.Fault(); got != want || testutil.ToFloat64(w.silent) != gauge {
				t.Errorf("after %v: %q, gauge %v, want %q", time.Since(begun), got, testutil.ToFloat64(w.silent), want)
			}
		}
		wait(engineEvery / 2)
		check("")
		f.refuses.Store(true)
		check("")
		wait(engineEvery)
		check(since(engineEvery))
		wait(10 * engineEvery)
		check(since(engineEvery))
		if f.asked.Load() != 12 || f.lost.Load() != 10 {
			t.Errorf("%d probes, %d of them of a silent engine", f.asked.Load(), f.lost.Load())
		}
		f.refuses.Store(false)
		wait(engineEvery)
		check("")

		f.hangs.Store(true) // The next probe, the fourteenth, is under way after that.
		wait(engineEvery)
		check("")
		wait(engineTimeout)
		check(since(13 * engineEvery))
		f.hangs.Store(false) // The one under way still hangs.
		wait(engineTimeout)
		check("")

		f.hangs.Store(true)
		wait(engineEvery)
		stop() // In a probe: that is no fault.
		<-ended
		check("")
		for text, want := range map[string]int{"docker engine silent": 2, "docker engine answers again": 2, "err=": 2} {
			if n := strings.Count(log.String(), text); n != want {
				t.Errorf("%q is logged %d times, want %d:\n%s", text, n, want, &log)
			}
		}
	})
}
