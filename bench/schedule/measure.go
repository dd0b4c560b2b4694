package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"berth/bench/quantile"
	"berth/bench/usage"
	"berth/compute"
	"berth/fsm/command"
	"berth/loop"
)

const (
	inFlight    = 512              // Concurrent proposals while the queue is filled.
	stallTime   = 3 * time.Second  // Without a placement for this long, the rest does not fit.
	placedWait  = 10 * time.Second // Limit for placing the last submits of the steady phase.
	pollPeriod  = 10 * time.Millisecond
	submitSlots = 1024 // Submits in flight in the steady phase.
)

// meter measures commits of plans.
type meter struct {
	now func() time.Time

	mu        sync.Mutex
	placed    int
	plans     int
	first     time.Time // The first commit of a plan.
	last      time.Time
	busy      time.Duration // Total time of commits.
	submitted map[compute.ExecutionID]time.Time
	waits     []time.Duration
}

func newMeter(now func() time.Time) *meter {
	return &meter{now: now, submitted: make(map[compute.ExecutionID]time.Time)}
}

// submit records the start of a submit.
func (m *meter) submit(id compute.ExecutionID, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.submitted[id] = at
}

// committed records a plan that was proposed at start and the assignments of it
// that the state has placed.
func (m *meter) committed(start time.Time, placed []compute.ExecutionID) {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy += now.Sub(start)
	m.placed += len(placed)
	if len(placed) > 0 {
		if m.plans == 0 {
			m.first = now
		}
		m.plans++
		m.last = now
	}
	for _, id := range placed {
		if at, ok := m.submitted[id]; ok {
			m.waits = append(m.waits, now.Sub(at))
			delete(m.submitted, id)
		}
	}
}

// counts returns the numbers of placements and plans, the time of the last
// commit and the total time of commits.
func (m *meter) counts() (placed, plans int, last time.Time, busy time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.placed, m.plans, m.last, m.busy
}

// firstAt returns the time of the first commit of a plan.
func (m *meter) firstAt() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.first
}

// bare measures the commit rate of Raft alone: one small frame per entry, with
// many in flight.
func bare(ctx context.Context, f *fleet, r *Report) error {
	apply := func(int) error {
		var err error
		for range bareTries {
			p, leads := f.leader()
			if err = leads; err == nil {
				if err = p.cluster.ApplyEntry(f.load.clock(p.cluster.Term())); err == nil {
					return nil
				}
			}
			if !loop.Sleep(ctx, bareRetry) { // A machine with much else to do changes leaders.
				return ctx.Err()
			}
		}
		return err
	}
	if err := parallel(bareInFlight, bareEntries/bareWarmUp, apply); err != nil {
		return err
	}
	start := f.cfg.Now()
	if err := parallel(bareInFlight, bareEntries, apply); err != nil {
		return err
	}
	r.BareRaftPS = bareEntries / f.cfg.Now().Sub(start).Seconds()
	return ctx.Err()
}

// fill registers the nodes and queues the executions, before any loop runs.
func fill(ctx context.Context, f *fleet, r *Report) error {
	p, err := f.leader()
	if err != nil {
		return err
	}
	tokens, registrations, inventories := f.load.nodes()
	submits := f.load.submits(f.cfg.Queued, 1)
	var start time.Time
	for _, cmds := range [][]command.Command{tokens, registrations, inventories, submits} {
		start = f.cfg.Now()
		err := parallel(inFlight, len(cmds), func(i int) error {
			return p.register(ctx, cmds[i])
		})
		if err != nil {
			return err
		}
	}
	r.SubmitsPS = float64(len(submits)) / f.cfg.Now().Sub(start).Seconds()
	return nil
}

// register proposes a command. It repeats an inventory if another leader has
// taken over since its term was read.
func (p *peer) register(ctx context.Context, cmd command.Command) error {
	for {
		c, isInventory := cmd.(command.SetInventory)
		if isInventory {
			c.Term = p.cluster.Term()
			cmd = c
		}
		_, _, err := command.Propose(ctx, p.cluster, cmd)
		if !isInventory || compute.CodeOf(err) != compute.CodeConflict || ctx.Err() != nil {
			return err
		}
	}
}

// place starts the loop and waits until the queue is empty or stalls.
func place(ctx context.Context, f *fleet, r *Report) error {
	start, used := f.cfg.Now(), usage.CPU()
	f.schedule(ctx)
	ticker := time.NewTicker(pollPeriod)
	defer ticker.Stop()
	for {
		placed, plans, last, busy := f.meter.counts()
		r.Placed, r.Plans, r.Waiting = placed, plans, f.cfg.Queued-placed
		if placed > 0 {
			r.Seconds = last.Sub(start).Seconds()
			r.PlacementsPS = float64(placed) / r.Seconds
			r.FirstPlanMS = milliseconds(f.meter.firstAt().Sub(start))
			r.CommitShare = busy.Seconds() / r.Seconds
			r.CPUMicros = float64((usage.CPU() - used).Microseconds()) / float64(placed)
		}
		if r.Waiting <= 0 || placed > 0 && f.cfg.Now().Sub(last) > stallTime {
			return nil
		}
		if placed == 0 && f.cfg.Now().Sub(start) > setupTimeout {
			return errors.New("nothing was placed")
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// steady submits at the configured rate while the loop that place started
// continues.
func steady(ctx context.Context, f *fleet, r *Report) error {
	if f.cfg.Steady == 0 {
		return nil
	}
	p, err := f.leader()
	if err != nil {
		return err
	}
	cmds := f.load.submits(int(float64(f.cfg.Rate)*f.cfg.Steady.Seconds()), 2)
	took := make([]time.Duration, len(cmds))
	start := f.cfg.Now()
	err = parallel(submitSlots, len(cmds), func(i int) error {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(f.cfg.Rate))
		if err := sleepUntil(ctx, due); err != nil {
			return err
		}
		c := cmds[i].(command.Submit)
		// A late submit counts from the time it was due.
		f.meter.submit(c.Execution.ID, due)
		_, _, err := command.Propose(ctx, p.cluster, c)
		took[i] = f.cfg.Now().Sub(due)
		return err
	})
	if err != nil {
		return err
	}
	seconds := f.cfg.Now().Sub(start).Seconds()
	waits, left, err := f.meter.awaitPlaced(ctx)
	if err != nil {
		return err
	}
	if len(waits) == 0 {
		return errors.New("nothing was placed: there are too few nodes for this many executions")
	}
	r.Latency = &Latency{
		RatePS: float64(len(cmds)) / seconds, Samples: len(waits), Unplaced: left,
		SubmitP50: milliseconds(quantile.At(took, 0.5)),
		P50:       milliseconds(quantile.At(waits, 0.5)), P99: milliseconds(quantile.At(waits, 0.99)),
		Max: milliseconds(slices.Max(waits)),
	}
	return nil
}

// awaitPlaced waits up to placedWait until every submit is placed. It returns
// the waits and the number not placed.
func (m *meter) awaitPlaced(ctx context.Context) (waits []time.Duration, left int, err error) {
	end := m.now().Add(placedWait)
	for {
		m.mu.Lock()
		left, waits = len(m.submitted), slices.Clone(m.waits)
		m.mu.Unlock()
		if left == 0 || m.now().After(end) {
			return waits, left, nil
		}
		if err := sleepUntil(ctx, m.now().Add(pollPeriod)); err != nil {
			return nil, 0, err
		}
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// sleepUntil waits until a time or the end of ctx.
func sleepUntil(ctx context.Context, at time.Time) error {
	if !loop.Sleep(ctx, time.Until(at)) {
		return context.Cause(ctx)
	}
	return nil
}

// parallel calls do with 0 to n-1 in order, with several concurrent calls,
// until one fails.
func parallel(workers, n int, do func(i int) error) error {
	var next, failed atomic.Int64
	var first error
	var once sync.Once
	var group sync.WaitGroup
	for range min(workers, n) {
		group.Go(func() {
			for failed.Load() == 0 {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					once.Do(func() { first = fmt.Errorf("request %d of %d: %w", i+1, n, err) })
					failed.Store(1)
				}
			}
		})
	}
	group.Wait()
	return first
}
