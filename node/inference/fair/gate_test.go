package fair_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth/node/inference/fair"
)

// takes is how long a model computes a request. Requests differ, as they do.
func takes(n int) time.Duration { return time.Second + time.Duration(n*137%100-50)*time.Millisecond }

// answer has a request served, and returns how long it took with its wait.
func answer(t *testing.T, g *fair.Gate[string], owner string, n int) time.Duration {
	begun := time.Now()
	leave, err := g.Enter(t.Context(), owner, 1000)
	if err != nil {
		t.Error(err)
		return 0
	}
	time.Sleep(takes(n)) //nolint:forbidigo // The clock is the bubble's.
	leave(50)
	return time.Since(begun)
}

// p95 asks one request after another and returns the time of all but the slowest.
func p95(t *testing.T, g *fair.Gate[string], owner string) time.Duration {
	const asked = 100
	var took []time.Duration
	for n := range asked {
		took = append(took, answer(t, g, owner, n))
	}
	slices.Sort(took)
	return took[asked*95/100]
}

// TestCrowd has one owner keep 1,000 requests in flight: the times of another one do not
// double.
func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fair.NewGate[string](2000, func() {})
		g.SetPlaces(8)
		alone := p95(t, g, "small")
		ctx, stop := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for i := range 1000 {
			crowd.Go(func() {
				for n := i; ctx.Err() == nil; n++ {
					leave, err := g.Enter(ctx, "large", 1000)
					if err != nil {
						return
					}
					time.Sleep(takes(n)) //nolint:forbidigo // The clock is the bubble's.
					leave(50)
				}
			})
		}
		synctest.Wait()
		inFlight := func() {
			t.Helper()
			if inside, waiting := g.State(); inside != 8 || inside+waiting != 1000 {
				t.Errorf("the large owner has %d requests inside and %d wait", inside, waiting)
			}
		}
		inFlight()
		crowded := p95(t, g, "small")
		synctest.Wait()
		inFlight()
		if crowded > 2*alone {
			t.Errorf("the 95th percentile is %v beside the others and %v alone", crowded, alone)
		}
		stop()
		crowd.Wait()
		if inside, waiting := g.State(); inside != 0 || waiting != 0 {
			t.Errorf("%d requests are left inside and %d wait", inside, waiting)
		}
	})
}

// TestGate checks which requests may wait, which leave the queue, and the effect of more
// places.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crowded := 0
		g := fair.NewGate[string](2, func() { crowded++ })
		g.SetPlaces(1)
		first, err := g.Enter(t.Context(), "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		left, entered := make(chan error, 1), make(chan func(int64), 1)
		go func() {
			_, err := g.Enter(ctx, "a", 1)
			left <- err
		}()
		synctest.Wait()
		go func() {
			leave, err := g.Enter(t.Context(), "b", 1)
			if err != nil {
				t.Error(err)
			}
			entered <- leave
		}()
		synctest.Wait()
		if _, err := g.Enter(t.Context(), "c", 1); !errors.Is(err, fair.ErrFull) || crowded != 2 {
			t.Errorf("a full queue says %v; %d requests began to wait", err, crowded)
		}
		hangUp()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who hangs up gets %v", err)
		}
		if inside, waiting := g.State(); inside != 1 || waiting != 1 {
			t.Errorf("%d are inside and %d wait", inside, waiting)
		}
		first(1)
		first(1) // A second time it does nothing.
		second := <-entered
		if inside, waiting := g.State(); inside != 1 || waiting != 0 {
			t.Errorf("%d are inside and %d wait", inside, waiting)
		}
		go func() {
			leave, err := g.Enter(t.Context(), "c", 1)
			if err != nil {
				t.Error(err)
			}
			entered <- leave
		}()
		synctest.Wait()
		g.SetPlaces(2)
		(<-entered)(1)
		second(0)
		if inside, waiting := g.State(); inside != 0 || waiting != 0 {
			t.Errorf("at the end %d are inside and %d wait", inside, waiting)
		}
	})
}

// TestNobodyFillsTheQueue checks that an owner with any number of requests leaves space in
// the queue for others.
func TestNobodyFillsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fair.NewGate[string](8, func() {}) // Without places: all wait.
		ctx, hangUp := context.WithCancel(t.Context())
		waits := func(owner string) (n int) {
			for range 20 {
				refused := make(chan error, 1)
				go func() {
					_, err := g.Enter(ctx, owner, 1)
					refused <- err
				}()
				synctest.Wait()
				select {
				case err := <-refused:
					if !errors.Is(err, fair.ErrFull) {
						t.Error(err)
					}
				default:
					n++
				}
			}
			return n
		}
		for i, want := range []int{4, 2, 1, 1, 0} {
			if got := waits(string(rune('a' + i))); got != want {
				t.Errorf("owner %d has %d requests wait, want %d", i, got, want)
			}
		}
		hangUp()
	})
}
