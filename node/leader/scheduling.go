package leader

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// Committer writes the scheduler's decisions to the state.
type Committer struct {
	machine *fsm.FSM
	propose Propose
	waits   prometheus.Histogram
}

// NewCommitter returns the committer of the scheduler.
func NewCommitter(machine *fsm.FSM, propose Propose, reg prometheus.Registerer) *Committer {
	return &Committer{machine: machine, propose: propose, waits: newQueueWaits(reg)}
}

// CommitPlan proposes a plan and returns the index of its entry.
func (c *Committer) CommitPlan(ctx context.Context, term, viewIndex uint64, plan compute.Plan) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, proposeWait)
	defer cancel()
	_, index, err := c.propose(ctx, command.CommitPlan{Term: term, ViewIndex: viewIndex, Plan: plan})
	if err != nil {
		return 0, err
	}
	c.observe(plan)
	return index, nil
}

// observe measures how long the placed executions waited.
func (c *Committer) observe(plan compute.Plan) {
	view := c.machine.View()
	for _, a := range plan.Assignments {
		if e, ok := view.AnyExecution(a.Execution); ok {
			c.waits.Observe(view.Now().Sub(e.CreatedAt).Seconds())
		}
	}
}

// TakeSelection takes the queue message of a GPU selection; the state refuses
// one that was taken.
func (c *Committer) TakeSelection(
	ctx context.Context, term uint64, parent *compute.Execution, profiles []string, detail string,
) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, proposeWait)
	defer cancel()
	cmd := command.TakeSelection{Term: term, Parent: parent.ID, Detail: detail}
	for _, profile := range profiles {
		for i := range parent.Selection.Runs() {
			id, err := uuid.NewV7()
			if err != nil {
				return 0, err
			}
			cmd.Children = append(cmd.Children, command.Child{
				ID: compute.ExecutionID{UUID: compute.UUID(id)}, Profile: profile, Repeat: i + 1,
			})
		}
	}
	if len(profiles) == 0 {
		cmd.Reason = compute.ReasonNoCandidates
	}
	_, index, err := c.propose(ctx, cmd)
	return index, err
}

// newQueueWaits returns the histogram of the time between submit and
// placement.
func newQueueWaits(reg prometheus.Registerer) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "berth_queue_wait_seconds",
		Help:    "Time from an execution's submit to its placement, as the leader saw it.",
		Buckets: prometheus.ExponentialBuckets((2 * time.Millisecond).Seconds(), 4, 10),
	})
	reg.MustRegister(h)
	return h
}
