package explain

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"berth/compute"
)

// TestTurnsGoFromOrganizationToOrganization has one organization ask a lot
// before another asks once: that one is answered next.
func TestTurnsGoFromOrganizationToOrganization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newLimiter()
		var answered []string
		greedy, modest := compute.OrgID{UUID: compute.UUID{1}}, compute.OrgID{UUID: compute.UUID{2}}
		first, err := limiter.take(t.Context(), greedy)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(org compute.OrgID, name string) {
			go func() {
				done, err := limiter.take(t.Context(), org)
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
			t.Errorf("%d organizations are remembered", len(limiter.queues))
		}
	})
}

// TestTurnsEndWithTheirContext holds that whoever gives up does not wait, in
// its queue or in line, and leaves nothing behind.
func TestTurnsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newLimiter()
		busy, err := limiter.take(t.Context(), compute.OrgID{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 3)
		for _, org := range []compute.OrgID{{}, {UUID: compute.UUID{1}}, {UUID: compute.UUID{1}}} {
			go func() {
				_, err := limiter.take(ctx, org)
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
		again, err := limiter.take(t.Context(), compute.OrgID{UUID: compute.UUID{1}})
		if err != nil {
			t.Fatal(err)
		}
		if again(); len(limiter.queues) != 0 {
			t.Errorf("%d organizations are remembered", len(limiter.queues))
		}
	})
}
