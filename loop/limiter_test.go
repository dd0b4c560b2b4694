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

// TestWaitsEndWithTheirContext holds that whoever gives up does not wait, in
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
