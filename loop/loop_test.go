package loop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"berth/loop"
)

func TestSleep(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	tests := []struct {
		name  string
		limit time.Duration // Time limit of the context; 0 for one that has ended.
		sleep time.Duration
		took  time.Duration
		want  bool
	}{
		{"whole", time.Minute, time.Second, time.Second, true},
		{"no time", time.Minute, 0, 0, true},
		{"negative", time.Minute, -time.Second, 0, true},
		{"context ends first", time.Second, time.Minute, time.Second, false},
		{"context has ended", 0, time.Minute, 0, false},
		{"context has ended, no time", 0, 0, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := ended
				if tt.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(t.Context(), tt.limit)
					defer cancel()
				}
				began := time.Now()
				alive := loop.Sleep(ctx, tt.sleep)
				if took := time.Since(began); alive != tt.want || took != tt.took {
					t.Errorf("got %v after %v, want %v after %v", alive, took, tt.want, tt.took)
				}
			})
		})
	}
}

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer cancel()
		calls := 0
		loop.Every(ctx, time.Second, func() { calls++ })
		if calls != 11 {
			t.Errorf("called %d times in 10 s, want 11", calls)
		}
		loop.Every(ctx, time.Second, func() { calls++ })
		if calls != 11 {
			t.Error("called after the context had ended")
		}
	})
}

// TestTogether holds that loops tick at the same times, whenever they began.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now() // A whole day.
		for _, at := range []struct{ start, first time.Duration }{
			{300 * time.Millisecond, 2 * time.Second},
			{1700 * time.Millisecond, 4 * time.Second}, // The next one is too near.
		} {
			loop.Sleep(t.Context(), time.Until(began.Add(at.start)))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var calls []time.Duration
			loop.Every(ctx, 2*time.Second, func() {
				if calls = append(calls, time.Since(began)); len(calls) == 3 {
					cancel()
				}
			})
			if calls[0] != at.start || calls[1] != at.first || calls[2] != at.first+2*time.Second {
				t.Errorf("calls at %v", calls)
			}
			began = began.Add(20 * time.Second)
		}
	})
}

func TestOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		change := make(chan struct{}, 1)
		calls := 0
		began := time.Now()
		loop.OnChange(ctx, time.Hour, func() <-chan struct{} { return change }, func() {
			switch calls++; calls {
			case 1, 2: // A change during the call, of which the next call learns.
				change <- struct{}{}
			case 4:
				cancel()
			}
		})
		if took := time.Since(began); calls != 4 || took != time.Hour {
			t.Errorf("called %d times in %v, want 4 times in 1 h", calls, took)
		}
	})
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		calls := 0
		err := loop.Until(t.Context(), time.Second, func() bool { calls++; return calls == 4 })
		if took := time.Since(began); err != nil || took != 3*time.Second {
			t.Errorf("got %v after %v, want success after 3 s", err, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := loop.Until(ctx, time.Second, func() bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
	})
}
