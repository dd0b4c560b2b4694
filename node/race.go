package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"berth/cluster/rpc"
	"berth/compute"
	"berth/fault"
	"berth/fsm"
	"berth/scheduler/selection"
)

// methodProgress is the call by which the leader asks a node how far runs of
// GPU selections are.
const methodProgress = "race.progress"

// Limits of watching GPU selections.
const (
	racePeriod     = 500 * time.Millisecond
	progressWait   = 2 * time.Second // For one node's answer.
	progressPoints = 32              // Of one run.
	progressRuns   = 512             // That one call asks for.
)

// progressRun asks for, and answers with, how far one run is.
type progressRun struct {
	Execution compute.ExecutionID     `cbor:"1,keyasint"`
	Elapsed   time.Duration           `cbor:"2,keyasint,omitempty"`
	Points    []compute.ProgressPoint `cbor:"3,keyasint,omitempty"`

	// What the leader knows of the run, for a node that has no replica.
	Known *knownRun `cbor:"4,keyasint,omitempty"`
}

// knownRun is what measuring the progress of a run needs of its record.
type knownRun struct {
	Epoch     uint64          `cbor:"1,keyasint"`
	Status    compute.Status  `cbor:"2,keyasint"`
	StartedAt compute.Instant `cbor:"3,keyasint"`
	Duration  time.Duration   `cbor:"4,keyasint,omitempty"`
}

// watchRaces stops the runs of GPU selections that need not go on. It keeps
// nothing: what it decides on is in the state and in the nodes' output, so
// that a leader that is lost costs a race only time. The nodes are asked once
// for all races, so that one which does not answer delays each by no more than
// its own wait.
func (l *leader) watchRaces(ctx context.Context, term uint64) {
	view := l.machine.View()
	races := map[compute.ExecutionID]*selection.Live{}
	questions := map[compute.NodeID][]progressRun{}
	for parent := range view.RunningSelections() {
		if parent.Stop != compute.StopNone {
			continue
		}
		race := raceOf(view, parent, l.now())
		races[parent.ID] = race
		if race.NeedsProgress() {
			addQuestions(questions, view, parent)
		}
	}
	paces := l.paces(ctx, questions)
	for parent := range view.RunningSelections() {
		if race := races[parent.ID]; race != nil && ctx.Err() == nil {
			race.Progress = paces
			l.stopRuns(ctx, view, fsm.StopCandidates{Term: term, Parent: parent.ID, Stops: race.Stops()})
		}
	}
}

// stopRuns proposes the stops of one race, if there are any.
func (l *leader) stopRuns(ctx context.Context, view *fsm.View, cmd fsm.StopCandidates) {
	if len(cmd.Stops) == 0 || view.Allows(cmd) != nil { // Until all servers are upgraded, the runs go on to their end.
		return
	}
	fault.Point("leader.races.before")
	if _, err := l.do(ctx, cmd); err != nil && ctx.Err() == nil {
		l.logger.Warn("runs of a GPU selection not stopped", "execution", cmd.Parent, "err", err)
	}
	fault.Point("leader.races.after")
}

// raceOf returns what the state knows of a GPU selection.
func raceOf(view *fsm.View, parent *compute.Execution, now time.Time) *selection.Live {
	s := parent.Selection
	race := &selection.Live{
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
		race.Candidates = append(race.Candidates, c)
	}
	return race
}

// addQuestions adds, by node, the runs of a GPU selection of which it has to be
// known how far they are, those that have completed too: their progress is the
// measure of the others'. Nodes that are down are not asked.
func addQuestions(questions map[compute.NodeID][]progressRun, view *fsm.View, parent *compute.Execution) {
	for _, e := range view.Children(parent.ID) {
		attempts := view.Attempts(e.ID)
		if len(attempts) == 0 || e.Status != compute.StatusRunning && e.Status != compute.StatusCompleted {
			continue
		}
		at := attempts[len(attempts)-1].Node
		if node, ok := view.Node(at); ok && node.State == compute.NodeUp {
			questions[at] = append(questions[at], progressRun{Execution: e.ID, Known: &knownRun{
				Epoch: e.Epoch, Status: e.Status, StartedAt: e.StartedAt, Duration: e.Duration,
			}})
		}
	}
}

// paces asks each node how far runs are, as many at a time as a call may ask
// for.
func (l *leader) paces(
	ctx context.Context, questions map[compute.NodeID][]progressRun,
) map[compute.ExecutionID]selection.Progress {
	ctx, cancel := context.WithTimeout(ctx, progressWait)
	defer cancel()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		paces = map[compute.ExecutionID]selection.Progress{}
	)
	for node, all := range questions {
		for runs := range slices.Chunk(all, progressRuns) {
			wg.Go(func() {
				// A node that does not answer has its runs go on.
				answer, err := l.progress(ctx, node, runs)
				if err != nil {
					l.logger.Debug("progress unknown", "node", node, "err", err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, run := range answer {
					paces[run.Execution] = selection.Progress{Elapsed: run.Elapsed, Points: run.Points}
				}
			})
		}
	}
	wg.Wait()
	return paces
}

// askProgress asks one node how far runs are.
func (n *Node) askProgress(ctx context.Context, node compute.NodeID, runs []progressRun) ([]progressRun, error) {
	if node == n.cluster.ID() {
		return n.progress.of(ctx, n.machine.View().AnyExecution, runs), nil
	}
	request, err := cbor.Marshal(runs)
	if err != nil {
		return nil, err
	}
	data, err := n.cluster.Call(ctx, node, methodProgress, request)
	if err != nil {
		return nil, err
	}
	var answer []progressRun
	return answer, cbor.Unmarshal(data, &answer)
}

// serveProgress answers another node's methodProgress.
func (n *Node) serveProgress(ctx context.Context, _ rpc.Peer, request []byte) ([]byte, error) {
	var runs []progressRun
	if err := cbor.Unmarshal(request, &runs); err != nil || len(runs) > progressRuns {
		return nil, compute.Errorf(compute.CodeInvalid, "Not a list of executions.")
	}
	lookup := n.machine.View().AnyExecution
	if n.isWorker() {
		lookup = knownRuns(runs)
	}
	return cbor.Marshal(n.progress.of(ctx, lookup, runs))
}

// knownRuns looks runs up in what the leader has said of them.
func knownRuns(runs []progressRun) func(compute.ExecutionID) (*compute.Execution, bool) {
	known := make(map[compute.ExecutionID]*compute.Execution, len(runs))
	for _, run := range runs {
		if k := run.Known; k != nil {
			known[run.Execution] = &compute.Execution{
				ID: run.Execution, Epoch: k.Epoch, Status: k.Status, StartedAt: k.StartedAt, Duration: k.Duration,
			}
		}
	}
	return func(id compute.ExecutionID) (*compute.Execution, bool) {
		e, ok := known[id]
		return e, ok
	}
}
