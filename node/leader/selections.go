package leader

import (
	"context"
	"slices"
	"sync"
	"time"

	"berth/compute"
	"berth/fault"
	"berth/fsm"
	"berth/fsm/command"
	"berth/node/progress"
	"berth/scheduler/selection"
)

// Limits of watching GPU selections.
const (
	selectionPeriod = 500 * time.Millisecond
	progressWait    = 2 * time.Second // For one node's answer.
)

// watchSelections stops the runs of GPU selections that need not go on. It keeps
// nothing: it decides by the state and the nodes' output, so that the loss of a
// leader costs only time. The nodes are asked once for all selections, so that one
// which does not answer delays each by no more than its own wait.
func (l *Leader) watchSelections(ctx context.Context, term uint64) {
	view := l.Machine.View()
	selections := map[compute.ExecutionID]*selection.Live{}
	queries := map[compute.NodeID][]progress.Run{}
	for parent := range view.RunningSelections() {
		if parent.Stop != compute.StopNone {
			continue
		}
		live := selectionOf(view, parent, l.Now())
		selections[parent.ID] = live
		if live.NeedsProgress() {
			addQueries(queries, view, parent)
		}
	}
	known := l.progressOf(ctx, queries)
	for parent := range view.RunningSelections() {
		if live := selections[parent.ID]; live != nil && ctx.Err() == nil {
			live.Progress = known
			l.stopRuns(ctx, view, command.StopCandidates{Term: term, Parent: parent.ID, Stops: live.Stops()})
		}
	}
}

// stopRuns proposes the stops of one live, if there are any.
func (l *Leader) stopRuns(ctx context.Context, view *fsm.View, cmd command.StopCandidates) {
	if len(cmd.Stops) == 0 || view.Allows(cmd) != nil { // Until all servers are upgraded, the runs go on to their end.
		return
	}
	fault.Point("leader.races.before")
	if _, err := l.do(ctx, cmd); err != nil && ctx.Err() == nil {
		l.Logger.Warn("runs of a GPU selection not stopped", "execution", cmd.Parent, "err", err)
	}
	fault.Point("leader.races.after")
}

// selectionOf returns a GPU selection as the state has it.
func selectionOf(view *fsm.View, parent *compute.Execution, now time.Time) *selection.Live {
	s := parent.Selection
	live := &selection.Live{
		Objective: s.Objective, Repeats: s.Runs(), Complete: s.Complete, Deadline: s.Deadline,
		Created: parent.CreatedAt, Now: compute.InstantOf(now),
	}
	for _, runs := range compute.ByProfile(view.Children(parent.ID)) {
		c := compute.CandidateOf(runs)
		for i, e := range runs {
			if e.Stop != compute.StopNone && !e.Status.Terminal() {
				c.Runs[i].Status = compute.StatusCancelled // It is ending.
			}
			if e.Status != compute.StatusQueued {
				continue
			}
			if attempts := view.Attempts(e.ID); len(attempts) > 0 {
				c.Runs[i].Requeued = attempts[len(attempts)-1].EndedAt
			}
		}
		live.Candidates = append(live.Candidates, c)
	}
	return live
}

// addQueries adds, by node, the runs of a GPU selection whose progress is
// needed. Completed runs are among them: the progress of the others is compared
// with theirs. Nodes that are down are not asked.
func addQueries(queries map[compute.NodeID][]progress.Run, view *fsm.View, parent *compute.Execution) {
	for _, e := range view.Children(parent.ID) {
		attempts := view.Attempts(e.ID)
		if len(attempts) == 0 || e.Status != compute.StatusRunning && e.Status != compute.StatusCompleted {
			continue
		}
		at := attempts[len(attempts)-1].Node
		if node, ok := view.Node(at); ok && node.State == compute.NodeUp {
			queries[at] = append(queries[at], progress.Run{Execution: e.ID, Known: &progress.Known{
				Epoch: e.Epoch, Status: e.Status, StartedAt: e.StartedAt, Duration: e.Duration,
			}})
		}
	}
}

// progressOf asks each node how far runs are, as many at a time as a call may ask
// for.
func (l *Leader) progressOf(
	ctx context.Context, queries map[compute.NodeID][]progress.Run,
) map[compute.ExecutionID]selection.Progress {
	ctx, cancel := context.WithTimeout(ctx, progressWait)
	defer cancel()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		known = map[compute.ExecutionID]selection.Progress{}
	)
	for node, all := range queries {
		for runs := range slices.Chunk(all, progress.MaxRuns) {
			wg.Go(func() {
				// A node that does not answer has its runs go on.
				answer, err := l.Progress(ctx, node, runs)
				if err != nil {
					l.Logger.Debug("progress unknown", "node", node, "err", err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, run := range answer {
					known[run.Execution] = selection.Progress{Elapsed: run.Elapsed, Points: run.Points}
				}
			})
		}
	}
	wg.Wait()
	return known
}
