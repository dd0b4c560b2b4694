package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/fault"
	"berth/scheduler/selection"
)

// DefaultTick is how long the loop sleeps when no change wakes it.
const DefaultTick = time.Second

const (
	maxTaken = 64                     // Queue messages of GPU selections per step.
	minRest  = 100 * time.Microsecond // A shorter computation needs no rest.
	idleRest = 3                      // Rests for each computation without a plan.
)

// Config configures a Loop.
type Config struct {
	// Views returns the newest published view.
	Views func() View
	// Changed waits until Views returns a view newer than after, and returns
	// the error of ctx when that ends first.
	Changed func(ctx context.Context, after uint64) error

	Committer  Committer
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time // For the metrics only.
	Tick       time.Duration    // DefaultTick when zero.
}

// Loop is the leader's scheduling loop. It packs the newest view, commits the
// plan and takes the queue messages of GPU selections. It keeps no truth: a new
// leader starts with an empty Loop and loses nothing.
type Loop struct {
	config  Config
	log     *slog.Logger
	metrics *metrics
	packer  *Packer
	last    compute.Plan  // The last committed plan.
	busy    time.Duration // How long the last plan took to compute.
}

// New returns an idle Loop.
func New(c Config) *Loop {
	if c.Tick <= 0 {
		c.Tick = DefaultTick
	}
	return &Loop{
		config:  c,
		log:     c.Logger.With("part", "scheduler"),
		metrics: newMetrics(c.Registerer),
		packer:  NewPacker(),
	}
}

// Run schedules for the leader of term until ctx ends, and returns its error.
// It must not run twice at once.
func (l *Loop) Run(ctx context.Context, term uint64) error {
	defer func() { l.last, l.packer = compute.Plan{}, NewPacker() }() // They hold records of this term.
	for {
		v := l.config.Views()
		index, again := l.step(ctx, term, v)
		if err := l.await(ctx, max(index, v.Index()), again); err != nil {
			return fmt.Errorf("schedule: %w", err)
		}
	}
}

// step decides once on v. It returns the index that the next view must include,
// and whether the next step should follow without waiting for a change.
func (l *Loop) step(ctx context.Context, term uint64, v View) (index uint64, again bool) {
	taken := l.takeSelections(ctx, term, v)
	plan := l.pack(v)
	if plan.Empty() {
		return taken, taken > 0
	}
	if samePlan(plan, l.last) {
		l.log.WarnContext(ctx, "plan had no effect", "term", term, "index", v.Index())
		l.last = compute.Plan{} // The next step retries it.
		return taken, false
	}
	fault.Point("scheduler.commit.before")
	placed, err := l.config.Committer.CommitPlan(ctx, term, v.Index(), plan)
	if err != nil {
		l.log.WarnContext(ctx, "plan not committed", "term", term, "index", v.Index(), "err", err)
		return taken, false
	}
	fault.Point("scheduler.commit.after")
	l.last = plan
	return max(taken, placed), true
}

// pack computes the plan for v and measures how long that takes.
func (l *Loop) pack(v View) compute.Plan {
	start := l.config.Now()
	plan := l.packer.Pack(v)
	l.busy = l.config.Now().Sub(start)
	l.metrics.decision.Observe(l.busy.Seconds())
	l.metrics.fragmentation.Set(l.packer.fragmentation())
	return plan
}

// takeSelections takes the pending queue messages, the oldest first, and
// returns the highest index of their entries. A refused message does not delay
// the others.
func (l *Loop) takeSelections(ctx context.Context, term uint64, v View) (index uint64) {
	taken := 0
	for parent := range v.PendingSelections() {
		if taken++; taken > maxTaken || ctx.Err() != nil {
			return index
		}
		profiles, detail := selection.Candidates(openTypes(v, parent), parent)
		fault.Point("scheduler.take.before")
		i, err := l.config.Committer.TakeSelection(ctx, term, parent, profiles, detail)
		if err != nil {
			l.log.WarnContext(ctx, "selection not taken", "term", term, "execution", parent.ID.String(), "err", err)
			if compute.CodeOf(err) == compute.CodeUnavailable {
				return index
			}
			continue
		}
		fault.Point("scheduler.take.after")
		l.log.InfoContext(ctx, "selection taken", "term", term, "execution", parent.ID.String())
		index = max(index, i)
	}
	return index
}

// openTypes returns the GPU types of known nodes among which a selection chooses. Types that its organization may
// not use would take the places of others where it names none; Apply refuses them, and says so.
func openTypes(v View, parent *compute.Execution) []string {
	known := v.GPUTypes()
	named := parent.Selection != nil && len(parent.Selection.GPUTypes) > 0
	if named || len(known) <= selection.MaxCandidates {
		return known
	}
	quotas := v.Quotas(parent.Org)
	open := slices.DeleteFunc(slices.Clone(known), func(kind string) bool {
		work := &compute.Execution{Org: parent.Org, Profile: "gpu." + kind}
		return slices.ContainsFunc(quotas, func(q compute.Quota) bool { return q.Denied && q.AppliesTo(work) })
	})
	if len(open) == 0 {
		return known // Denied since it was submitted: Apply says why none is tried.
	}
	return open
}

// await returns when the next step is due: a view includes index and, unless
// again is set, something has changed since or a tick has passed. After a long
// computation it rests as long as that took, and longer if that led to no plan,
// so that neither a long queue nor a stream of submits behind one occupies a
// core. The error is that of ctx.
func (l *Loop) await(ctx context.Context, index uint64, again bool) error {
	for l.config.Views().Index() < index {
		if err := l.changed(ctx, index-1); err != nil {
			return err
		}
	}
	if rest := l.busy; rest >= minRest {
		if !again {
			rest *= idleRest
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
	if again {
		return ctx.Err()
	}
	return l.changed(ctx, index)
}

// changed waits for a view newer than after, for at most a tick. An error other
// than the end of ctx costs a tick: the next step reads the whole state anyway.
func (l *Loop) changed(ctx context.Context, after uint64) error {
	tick, cancel := context.WithTimeout(ctx, l.config.Tick)
	defer cancel()
	if err := l.config.Changed(tick, after); err != nil {
		<-tick.Done()
	}
	return ctx.Err()
}

// samePlan reports whether two plans are equal.
func samePlan(a, b compute.Plan) bool {
	return slices.Equal(a.Waiting, b.Waiting) && slices.Equal(a.Preemptions, b.Preemptions) &&
		slices.EqualFunc(a.Assignments, b.Assignments, func(x, y compute.Assignment) bool {
			return x.Execution == y.Execution && x.Node == y.Node && slices.Equal(x.GPUs, y.GPUs)
		})
}
