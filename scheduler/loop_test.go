package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/scheduler"
	"berth/scheduler/selection"
)

// leader is a Committer over a world, with faults to switch on.
type leader struct {
	*world

	plans    int // Committed.
	taken    []compute.ExecutionID
	profiles [][]string
	fail     error // Returned for plans instead of applying them.
	ignore   bool  // The state accepts plans and changes nothing but its index.
	refuse   map[compute.ExecutionID]error

	lagMu sync.Mutex
	lag   *fakeView // Published in place of the newest view while set.
}

func (l *leader) CommitPlan(_ context.Context, _, _ uint64, plan compute.Plan) (uint64, error) {
	l.mu.Lock()
	fail := l.fail
	if fail == nil {
		l.plans++
	}
	l.mu.Unlock()
	if fail != nil {
		return 0, fail
	}
	if l.ignore {
		plan = compute.Plan{}
	}
	return l.commit(plan), nil
}

func (l *leader) TakeSelection(_ context.Context, _ uint64, parent *compute.Execution, profiles []string, _ string) (uint64, error) {
	if err := l.refuse[parent.ID]; err != nil {
		return 0, err
	}
	l.taken = append(l.taken, parent.ID)
	l.profiles = append(l.profiles, profiles)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parents = slices.DeleteFunc(slices.Clone(l.parents), func(e *compute.Execution) bool { return e.ID == parent.ID })
	return l.bump(), nil
}

// count returns how many plans were committed and how many executions live.
func (l *leader) count() (plans, live int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.plans, len(l.live)
}

// setFail makes commits fail, or work again.
func (l *leader) setFail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

func (l *leader) views() scheduler.View {
	l.lagMu.Lock()
	defer l.lagMu.Unlock()
	if l.lag != nil {
		return l.lag
	}
	return l.view()
}

func (l *leader) setLag(v *fakeView) {
	l.lagMu.Lock()
	defer l.lagMu.Unlock()
	l.lag = v
}

// wait waits for a view newer than after; a lag ends with a tick.
func (l *leader) wait(ctx context.Context, after uint64) error {
	l.lagMu.Lock()
	lagging := l.lag != nil && l.lag.index <= after
	l.lagMu.Unlock()
	if lagging {
		<-ctx.Done()
		return ctx.Err()
	}
	return l.await(ctx, after)
}

// start runs a loop on l until stop is called, which returns the result of Run.
func (l *leader) start(t *testing.T, edit func(*scheduler.Config)) (stop func() error) {
	t.Helper()
	config := scheduler.Config{
		Views: l.views, Changed: l.wait, Committer: l, Now: time.Now, Tick: time.Second,
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}
	if edit != nil {
		edit(&config)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- scheduler.New(config).Run(ctx, 3) }()
	return func() error { cancel(); return <-done }
}

// elapse lets the bubble's time pass and everything in it settle.
func elapse(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestLoopPlacesWhatArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leader{world: newWorld(t, gpuNode(1, "t4", 1))}
		stop := l.start(t, nil)
		synctest.Wait()
		if plans, _ := l.count(); plans != 0 {
			t.Errorf("%d plans for an empty queue", plans)
		}
		l.submit(execution(1, whole("t4", 1)), execution(2, whole("t4", 1)))
		synctest.Wait()
		if _, live := l.count(); live != 1 || l.reasons()[2] != compute.ReasonGPUsBusy {
			t.Errorf("%d live, reasons %v; want one placed and one waiting", live, l.reasons())
		}
		l.finish(executionID(1))
		synctest.Wait()
		plans, live := l.count()
		if live != 1 || len(l.reasons()) != 0 {
			t.Error("the second execution was not placed when the first had ended")
		}
		elapse(time.Minute)
		if after, _ := l.count(); after != plans {
			t.Errorf("%d plans while nothing happened", after-plans)
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v, want that it was cancelled", err)
		}
	})
}

func TestLoopWaitsForItsOwnCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leader{world: newWorld(t, gpuNode(1, "t4", 2))}
		l.submit(execution(1, whole("t4", 1)))
		l.setLag(l.view()) // The view stays behind the state.
		stop := l.start(t, nil)
		elapse(10 * time.Second)
		if plans, _ := l.count(); plans != 1 {
			t.Errorf("%d plans from one view, want 1: the others place twice", plans)
		}
		l.setLag(nil)
		l.submit(execution(2, whole("t4", 1)))
		elapse(2 * time.Second)
		if plans, live := l.count(); plans != 2 || live != 2 {
			t.Errorf("%d plans, %d live after the view caught up, want 2 and 2", plans, live)
		}
		_ = stop()
	})
}

func TestLoopNeedsNoWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leader{world: newWorld(t, gpuNode(1, "t4", 1))}
		stop := l.start(t, func(c *scheduler.Config) {
			c.Changed = func(ctx context.Context, _ uint64) error { <-ctx.Done(); return ctx.Err() }
		})
		synctest.Wait()
		l.submit(execution(1, whole("t4", 1)))
		elapse(2 * time.Second)
		if _, live := l.count(); live != 1 {
			t.Error("a lost wake-up costs more than a tick")
		}
		_ = stop()
	})
}

func TestLoopSurvivesAFaultySignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leader{world: newWorld(t, gpuNode(1, "t4", 1))}
		calls := 0
		stop := l.start(t, func(c *scheduler.Config) {
			c.Changed = func(context.Context, uint64) error { calls++; return errors.New("broken") }
		})
		synctest.Wait()
		l.submit(execution(1, whole("t4", 1)))
		elapse(5 * time.Second)
		if _, live := l.count(); live != 1 || calls > 10 {
			t.Errorf("%d live after %d calls, want it placed by the tick", live, calls)
		}
		_ = stop()
	})
}

func TestLoopTriesAgainAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leader{world: newWorld(t, gpuNode(1, "t4", 1)), fail: compute.Errorf(compute.CodeUnavailable, "no leader")}
		l.submit(execution(1, whole("t4", 1)))
		stop := l.start(t, nil)
		elapse(10 * time.Second)
		if _, live := l.count(); live != 0 {
			t.Fatal("something was placed by a commit that failed")
		}
		l.setFail(nil)
		elapse(2 * time.Second)
		if _, live := l.count(); live != 1 {
			t.Error("nothing is placed once commits work again")
		}
		_ = stop()
	})
}

func TestLoopDoesNotSpinOnAPlanWithoutEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leader{world: newWorld(t, gpuNode(1, "t4", 1)), ignore: true}
		l.submit(execution(1, whole("t4", 1)))
		stop := l.start(t, nil)
		elapse(20 * time.Second)
		if plans, _ := l.count(); plans < 2 || plans > 30 {
			t.Errorf("%d tries in 20 ticks, want about one each", plans)
		}
		_ = stop()
	})
}

func TestLoopTakesSelections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leader{world: newWorld(t, gpuNode(1, "t4", 1), gpuNode(2, "h100", 1))}
		l.refuse = map[compute.ExecutionID]error{
			executionID(1): compute.Errorf(compute.CodeConflict, "taken before"),
		}
		l.parents = []*compute.Execution{parent(1), parent(2), parent(3, "h100")}
		stop := l.start(t, nil)
		elapse(5 * time.Second)
		if !slices.Equal(l.taken, []compute.ExecutionID{executionID(2), executionID(3)}) {
			t.Errorf("taken %v, want the second and third, once each", l.taken)
		}
		want := [][]string{{"gpu.h100", "gpu.t4"}, {"gpu.h100"}}
		if !slices.EqualFunc(l.profiles, want, slices.Equal) {
			t.Errorf("profiles %v, want %v", l.profiles, want)
		}
		_ = stop()
	})
}

// TestLoopSparesDeniedTypes checks that GPU types which an organization may not use take no place among
// those that a selection of it tries.
func TestLoopSparesDeniedTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leader{world: newWorld(t)}
		for i := range selection.MaxCandidates {
			kind := fmt.Sprintf("a%d", i)
			l.nodes = append(l.nodes, gpuNode(i+1, kind, 1))
			l.quotas = append(l.quotas, compute.Quota{Org: parent(1).Org, Profile: "gpu." + kind, Denied: true})
		}
		l.nodes = append(l.nodes, gpuNode(selection.MaxCandidates+1, "t4", 1))
		l.parents = []*compute.Execution{parent(1), parent(2, "a0", "t4")}
		stop := l.start(t, nil)
		elapse(5 * time.Second)
		if want := [][]string{{"gpu.t4"}, {"gpu.a0", "gpu.t4"}}; !slices.EqualFunc(l.profiles, want, slices.Equal) {
			t.Errorf("profiles %v, want %v", l.profiles, want)
		}
		_ = stop()
	})
}

func TestLoopRestsAfterALongLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leader{world: newWorld(t, cpuNode(1, 64, 256))}
		slow := time.Now()
		stop := l.start(t, func(c *scheduler.Config) {
			c.Now = func() time.Time { slow = slow.Add(100 * time.Millisecond); return slow }
		})
		synctest.Wait()
		for i := range 50 { // One change each 10 ms for half a second.
			l.submit(execution(i+1, cpus(1)))
			elapse(10 * time.Millisecond)
		}
		if plans, _ := l.count(); plans > 10 {
			t.Errorf("%d plans of 100 ms each in 500 ms", plans)
		}
		elapse(time.Second)
		if _, live := l.count(); live != 50 {
			t.Errorf("%d live, want all 50", live)
		}
		_ = stop()
	})
}

// TestLoopRestsLongerWithoutAPlan holds that submits that nothing can start take
// at most a quarter of a core for plans.
func TestLoopRestsLongerWithoutAPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leader{world: newWorld(t, gpuNode(1, "t4", 1))}
		begun := time.Now()
		passes := 0
		stop := l.start(t, func(c *scheduler.Config) {
			c.Now = func() time.Time { passes++; return begun.Add(time.Duration(passes) * 10 * time.Millisecond) }
		})
		for i := range 400 { // One change each 2.5 ms for a second.
			e := execution(i+1, whole("t4", 2))
			e.Reason = compute.ReasonNeverFits
			l.submit(e)
			elapse(2500 * time.Microsecond)
		}
		if passes /= 2; passes < 10 || passes > 40 { // Two readings of the clock each.
			t.Errorf("%d computations of 10 ms each in a second", passes)
		}
		_ = stop()
	})
}

func TestLoopMeasures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		half := used(gpuNode(1, "t4", 2), 4, 32, 500) // 500 free on a used GPU, 1,000 whole.
		l := &leader{world: newWorld(t, half)}
		stop := l.start(t, func(c *scheduler.Config) { c.Registerer = reg })
		synctest.Wait()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, f := range families {
			m := f.GetMetric()[0]
			values[f.GetName()] = m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		if got := values["berth_scheduler_fragmentation_ratio"]; got < 0.333 || got > 0.334 {
			t.Errorf("fragmentation %v, want a third", got)
		}
		if values["berth_scheduler_decision_seconds"] < 1 {
			t.Error("no decision was measured")
		}
		_ = stop()
	})
}

// parent returns the parent of a GPU selection that asks for GPU types, or for
// all of them.
func parent(n int, gpuTypes ...string) *compute.Execution {
	e := execution(n, compute.Request{})
	e.Kind, e.Status = compute.KindSelection, compute.StatusPending
	e.Selection = &compute.Selection{GPUTypes: gpuTypes}
	return e
}
