package simulate

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/scheduler"
	"berth/scheduler/forecast"
)

// Intervals of virtual time.
const (
	clockStep = 5 * time.Minute  // The most that one entry may advance the state's clock.
	tickEvery = 10 * time.Second // The leader's interval.
	reports   = 100              // Number of progress reports.
)

// job is an execution that has not ended.
type job struct {
	arrival

	id        compute.ExecutionID
	submitted compute.Instant
	node      compute.NodeID // Set at placement.
	epoch     uint64
	started   compute.Instant
	ends      compute.Instant
	counted   bool // It arrived in the window.
	again     bool // It was placed before.
	yields    bool // It ends because of a preemption.
	place     int  // Index in running.
}

// running is a heap of the running jobs by end time.
type running []*job

func (r running) Len() int { return len(r) }
func (r running) Less(i, j int) bool {
	if r[i].ends != r[j].ends {
		return r[i].ends < r[j].ends
	}
	return string(r[i].id.UUID[:]) < string(r[j].id.UUID[:])
}

func (r running) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].place, r[j].place = i, j
}

func (r *running) Push(x any) {
	x.(*job).place = len(*r)
	*r = append(*r, x.(*job))
}

func (r *running) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// simulation is a running simulation.
type simulation struct {
	config *Config
	fleet  *fleet
	world  *world
	packer *scheduler.Packer
	source *source

	coming    *arrival // The next to submit; nil at the end.
	submitted int
	waiting   map[compute.ExecutionID]*job
	running   running
	live      map[compute.ExecutionID]*job // Running jobs.
	faults    *faultSource
	ticked    compute.Instant
	estimated compute.Instant

	stats      stats
	packing    time.Duration // Wall time of planning.
	estimating time.Duration // Wall time of estimating.
}

// Run simulates c.
func Run(ctx context.Context, c Config) (*Report, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	began := c.Now()
	f, err := newFleet(c.Nodes)
	if err != nil {
		return nil, err
	}
	source, err := newSource(&c, f)
	if err != nil {
		return nil, err
	}
	memory, err := weigh(&c, f, source)
	if err != nil {
		return nil, err
	}
	w, err := newWorld(f, source.organizations(), c.Now)
	if err != nil {
		return nil, err
	}
	s := &simulation{
		config: &c, fleet: f, world: w, packer: scheduler.NewPacker(), source: source,
		waiting: map[compute.ExecutionID]*job{}, live: map[compute.ExecutionID]*job{},
		faults: newFaultSource(&c, len(f.nodes)),
	}
	if err := s.stats.begin(s); err != nil {
		return nil, err
	}
	s.fetch()
	setup := c.Now().Sub(began)
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	out := s.stats.report(s)
	out.Memory, out.Memory.PeakHeap = memory, s.stats.peakHeap
	out.Cost.SetupSeconds = setup.Seconds()
	out.Cost.WallSeconds = c.Now().Sub(began).Seconds()
	return out, nil
}

// fetch takes the next arrival from the source.
func (s *simulation) fetch() {
	s.coming = nil
	if s.submitted < s.config.Executions {
		a := s.source.take()
		s.coming = &a
		s.submitted++
	}
}

// run advances time until everything submitted has ended.
func (s *simulation) run(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		next, more := s.next()
		if !more {
			break
		}
		if err := s.advance(next); err != nil {
			return err
		}
		if err := s.commitEvents(); err != nil {
			return err
		}
		if err := s.injectFaults(); err != nil {
			return err
		}
		if err := s.plan(); err != nil {
			return err
		}
		if err := s.estimate(); err != nil {
			return err
		}
		s.stats.round(s)
	}
	if err := s.world.machine.View().Check(); err != nil {
		return fmt.Errorf("the state broke an invariant: %w", err)
	}
	return nil
}

// next returns the end of the next round with an event.
func (s *simulation) next() (at compute.Instant, more bool) {
	at = compute.Never
	if s.coming != nil {
		at = began.Add(s.coming.after)
	}
	if len(s.running) > 0 {
		at = min(at, s.running[0].ends)
	}
	if at < compute.Never || len(s.waiting) > 0 && len(s.faults.away) > 0 {
		at = min(at, s.faults.next())
	}
	if at == compute.Never {
		return 0, false
	}
	round := compute.Instant(s.config.Round.Milliseconds())
	at = max(at, s.world.now+1)
	return (at + round - 1) / round * round, true
}

// advance moves the clock. It advances the state's clock in steps that the
// state accepts.
func (s *simulation) advance(to compute.Instant) error {
	for to.Sub(s.world.now) > clockStep {
		s.stats.pass(clockStep)
		s.world.now = s.world.now.Add(clockStep)
		if err := s.tick(); err != nil {
			return err
		}
	}
	s.stats.pass(to.Sub(s.world.now))
	s.world.now = to
	if to.Sub(s.ticked) >= tickEvery {
		return s.tick()
	}
	return nil
}

// tick lets the state update its holds and prune old records.
func (s *simulation) tick() error {
	s.ticked = s.world.now
	_, err := s.world.entry([]command.Command{command.Tick{Term: term}})
	return err
}

// commitEvents commits the ends and arrivals of this round.
func (s *simulation) commitEvents() error {
	var commands []command.Command
	for len(s.running) > 0 && s.running[0].ends <= s.world.now {
		j := heap.Pop(&s.running).(*job)
		o := compute.Outcome{
			Execution: j.id, Epoch: j.epoch, Status: compute.StatusCompleted, Ran: true, Duration: j.ends.Sub(j.started),
			ExecletAt: j.started, StartedAt: j.started, EndedAt: j.ends,
		}
		if j.yields {
			o.Status, o.Reason = compute.StatusSystemFailure, compute.ReasonPreempted
			s.interrupted(j, true)
		} else {
			delete(s.live, j.id)
			s.stats.finished(j)
		}
		commands = append(commands, command.FinishAttempt{Node: j.node, Outcome: o})
	}
	ended := len(commands)
	var jobs []*job
	for s.coming != nil && began.Add(s.coming.after) <= s.world.now {
		j := &job{arrival: *s.coming, submitted: began.Add(s.coming.after)}
		c := s.world.submit(&j.arrival)
		j.id = c.Execution.ID
		commands, jobs = append(commands, c), append(jobs, j)
		s.fetch()
	}
	results, err := s.world.commit(commands)
	if err != nil {
		return err
	}
	for _, r := range results[:ended] {
		if r.Refusal != nil {
			return fmt.Errorf("an end was refused: %w", r.Refusal)
		}
	}
	for i, j := range jobs {
		refusal := results[ended+i].Refusal
		if refusal == nil {
			s.waiting[j.id] = j
		}
		s.stats.arrived(j, refusal)
	}
	return nil
}

// plan places executions as the leader's loop does: plan, commit, and repeat
// with a view that includes the commit.
func (s *simulation) plan() error {
	for len(s.waiting) > 0 {
		view := s.world.machine.View()
		start := s.config.Now()
		plan := s.packer.Pack(view)
		s.packing += s.config.Now().Sub(start)
		s.stats.plans++
		if plan.Empty() {
			return nil
		}
		results, err := s.world.entry([]command.Command{command.CommitPlan{Term: term, ViewIndex: view.Index(), Plan: plan}})
		if err != nil {
			return err
		}
		if results[0].Refusal != nil {
			return fmt.Errorf("a plan was refused: %w", results[0].Refusal)
		}
		if placed := results[0].Count; placed != len(plan.Assignments) {
			return fmt.Errorf("the state placed %d of %d", placed, len(plan.Assignments))
		}
		if err := s.start(plan.Assignments); err != nil {
			return err
		}
		s.schedulePreemptions(plan.Preemptions)
		if !scheduler.Full(plan) {
			return nil
		}
	}
	return nil
}

// estimate records estimated starts of queued executions, as the leader does.
// The state compares them with the actual starts.
func (s *simulation) estimate() error {
	every := s.config.Estimates
	if every == 0 || len(s.waiting) == 0 || s.world.now.Sub(s.estimated) < every {
		return nil
	}
	s.estimated = s.world.now
	view := s.world.machine.View()
	start := s.config.Now()
	list := forecast.Unestimated(view, forecast.EstimateQueue)
	s.estimating += s.config.Now().Sub(start)
	if len(list) == 0 {
		return nil
	}
	_, err := s.world.entry([]command.Command{command.RecordEstimates{Term: term, At: view.Now(), Estimates: list}})
	return err
}

// start starts the assigned executions on their nodes.
func (s *simulation) start(assignments []compute.Assignment) error {
	if len(assignments) == 0 {
		return nil
	}
	view := s.world.machine.View()
	var commands []command.Command
	for i := range assignments {
		j := s.waiting[assignments[i].Execution]
		if j == nil {
			return errors.New("an execution was placed twice")
		}
		delete(s.waiting, j.id)
		e, _ := view.AnyExecution(j.id)
		j.node, j.epoch = assignments[i].Node, e.Epoch
		j.started, j.ends = s.world.now, s.world.now.Add(j.lasts)
		heap.Push(&s.running, j)
		s.live[j.id] = j
		s.stats.placed(j)
		j.again = true
		commands = append(commands, command.StartAttempt{Node: j.node, Start: compute.AttemptStart{
			Execution: j.id, Epoch: j.epoch, ExecletAt: j.started, StartedAt: j.started,
		}})
	}
	results, err := s.world.commit(commands)
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Refusal != nil {
			return fmt.Errorf("a start was refused: %w", r.Refusal)
		}
	}
	return nil
}
