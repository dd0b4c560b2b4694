package loop

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

// TestOwnersAlternate has one owner ask a lot before another asks once: that one is
// answered next.
func TestOwnersAlternate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := NewFairLimiter[string](1)
		var answered []string
		greedy, modest := "greedy", "modest"
		first, err := limiter.Take(t.Context(), greedy)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(org, name string) {
			go func() {
				done, err := limiter.Take(t.Context(), org)
				if err != nil {
					t.Error(err)
					return
				}
				answered = append(answered, name)
				done()
			}()
			synctest.Wait()
		}
		for i := range 5 {
			ask(greedy, fmt.Sprint("greedy", i))
		}
		ask(modest, "modest")
		first()
		synctest.Wait()
		if len(answered) != 6 || answered[0] != "modest" {
			t.Errorf("answered %v", answered)
		}
		if len(limiter.queues) != 0 {
			t.Errorf("%d owners are remembered", len(limiter.queues))
		}
	})
}

// TestWaitsEndWithTheirContext holds that a caller that gives up does not wait, in
// its queue or in line, and leaves nothing behind.
func TestWaitsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := NewFairLimiter[string](1)
		busy, err := limiter.Take(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 3)
		for _, org := range []string{"", "1", "1"} {
			go func() {
				_, err := limiter.Take(ctx, org)
				failed <- err
			}()
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		for range cap(failed) {
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("who gave up got %v", err)
			}
		}
		busy()
		again, err := limiter.Take(t.Context(), "1")
		if err != nil {
			t.Fatal(err)
		}
		if again(); len(limiter.queues) != 0 {
			t.Errorf("%d owners are remembered", len(limiter.queues))
		}
	})
}

// TestLimiterIsBounded has more ask than may wait, of one owner and in all, and one
// that does not wait.
func TestLimiterIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := NewFairLimiter[string](1).Bound(3, 2)
		first, ok := limiter.TryTake("a")
		if !ok {
			t.Fatal("the first has to wait")
		}
		for _, owner := range []string{"a", "b"} {
			if _, ok := limiter.TryTake(owner); ok {
				t.Errorf("%s runs beside the first", owner)
			}
		}
		ended := make(chan error, 2)
		ask := func(owner string) {
			go func() {
				done, err := limiter.Take(t.Context(), owner)
				if err == nil {
					done()
				}
				ended <- err
			}()
			synctest.Wait()
		}
		ask("a")
		if _, err := limiter.Take(t.Context(), "a"); !errors.Is(err, ErrFull) {
			t.Errorf("one too many of an owner got %v", err)
		}
		ask("b")
		if _, err := limiter.Take(t.Context(), "c"); !errors.Is(err, ErrFull) {
			t.Errorf("one too many in all got %v", err)
		}
		first()
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		last, ok := limiter.TryTake("c")
		if !ok {
			t.Fatal("the limiter is not free again")
		}
		if last(); len(limiter.queues) != 0 || limiter.users != 0 {
			t.Errorf("%d owners and %d users are remembered", len(limiter.queues), limiter.users)
		}
	})
}
