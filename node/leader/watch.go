package leader

import (
	"context"
	"slices"
	"sync"
	"time"

	"berth/attempt"
	"berth/compute"
	"berth/fault"
	"berth/fsm/command"
	"berth/loop"
)

const (
	maxRecords = 64 // Changes of nodes that are on their way to the state at once.
	maxWaves   = 2  // Waves of changes in one round.
)

// watch detects nodes that the leader does not hear. One goroutine counts their
// silence, on time whatever the cluster does. Another one, which waits for commits,
// acts on it.
type watch struct {
	*Leader

	began  time.Time // On the stopwatch of heartbeats.
	braked bool      // In the last round; owned by the acting goroutine.
	note   recorder

	mu sync.Mutex

	counter *attempt.Watch
	silent  map[compute.NodeID]attempt.Silence // By the last scan.
	heard   map[compute.NodeID]time.Time       // When a node was heard last, by the last scan.
}

// recorder has the state take one change. It returns the index at which it did, 0
// when it did not.
type recorder func(ctx context.Context, term uint64, c attempt.Change) uint64

// newWatch returns the watch of a term that begins: every node has its full
// time.
func (l *Leader) newWatch() *watch {
	return &watch{
		Leader: l, note: l.recordNode, began: time.Now(), //nolint:forbidigo // A stopwatch.
		counter: attempt.NewWatch(), silent: map[compute.NodeID]attempt.Silence{}, heard: map[compute.NodeID]time.Time{},
	}
}

// scan counts for how long each node was not heard.
func (w *watch) scan() {
	view := w.Machine.View()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counter.Look(time.Since(w.began))
	clear(w.silent)
	clear(w.heard)
	for node := range view.Nodes() {
		heard, leads := w.Cluster.Heard(node.ID)
		w.heard[node.ID] = heard
		switch {
		case !leads:
		case heard.IsZero():
			w.silent[node.ID] = attempt.Silence{For: w.counter.Silent(node.ID, 0)}
		default:
			w.silent[node.ID] = attempt.Silence{For: w.counter.Silent(node.ID, heard.Sub(w.began)), Heard: true}
		}
	}
}

// silence returns for how long a node was not heard, false before the first
// scan of it.
func (w *watch) silence(node compute.NodeID) (attempt.Silence, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	silent, known := w.silent[node]
	return silent, known
}

// act records which nodes are heard. It then gives up the attempts on lost nodes
// that have ended for certain, unless too many nodes vanished at once. That is
// judged by the records, so that slow commits delay the loss and never the brake.
// Each wave is judged again: no node is recorded as back while another one is
// known to be gone and not recorded yet.
func (w *watch) act(ctx context.Context, term uint64) {
	verdict := w.judge()
	if len(verdict.Changes) > 0 {
		w.catchUp(ctx, term)
		verdict = w.judge()
	}
	for waves := 0; len(verdict.Changes) > 0; waves++ {
		if waves == maxWaves || !w.record(ctx, term, verdict.Changes) {
			return
		}
		verdict = w.judge()
	}
	for _, loss := range verdict.Losses {
		w.giveUp(ctx, term, loss)
	}
}

// judge returns the changes and losses that the newest records ask for.
func (w *watch) judge() attempt.Verdict {
	view := w.Machine.View()
	w.brake(view.Vanished())
	return attempt.Judge(view, w.silence)
}

// record has the state take the changes, all at once, so that those of one
// moment are of one moment there too. It reports whether it did and this node
// has seen it.
func (w *watch) record(ctx context.Context, term uint64, changes []attempt.Change) bool {
	var all sync.WaitGroup
	slots := make(chan struct{}, maxRecords) // Held by those that are on their way.
	indexes := make([]uint64, len(changes))
	for i, change := range changes {
		slots <- struct{}{}
		all.Go(func() {
			indexes[i] = w.note(ctx, term, change)
			<-slots
		})
	}
	all.Wait()
	if slices.Contains(indexes, 0) {
		return false
	}
	_, err := w.Machine.Wait(ctx, slices.Max(indexes))
	return err == nil
}

// recordNode is the recorder of a leader.
func (l *Leader) recordNode(ctx context.Context, term uint64, c attempt.Change) uint64 {
	l.Logger.Warn("node state changed", "node", c.Node, "status", c.State, "took", c.Silent)
	fault.Point("leader.node_state.before")
	index, err := l.do(ctx, command.SetNodeState{Term: term, Node: c.Node, State: c.State})
	fault.Point("leader.node_state.after")
	if err == nil {
		return index
	}
	if ctx.Err() == nil {
		l.Logger.Warn("node state not recorded", "node", c.Node, "err", err)
	}
	return 0
}

// brake is the circuit breaker for rescheduling. It notes whether too many nodes
// vanished at once, and logs when that begins and ends.
func (w *watch) brake(vanished []*compute.Node) {
	braked := len(vanished) > 0
	switch {
	case braked && !w.braked:
		for _, node := range vanished {
			w.Logger.Error("rescheduling stopped: too many nodes vanished at once", "node", node.ID)
		}
	case !braked && w.braked:
		w.Logger.Info("rescheduling resumed")
	}
	w.braked = braked
}

// giveUp has the state end the attempts of a lost node or reschedule them. The node gets
// no contact with the leader until the state has done so. With a new lease it would start
// attempts that it has not started, because the state still assigns them to it.
func (w *watch) giveUp(ctx context.Context, term uint64, loss attempt.Loss) {
	c := command.LoseAttempts{Term: term, Node: loss.Node}
	for _, work := range loss.Work {
		c.Attempts = append(c.Attempts, command.AttemptRef{Execution: work.Attempt.Execution, Epoch: work.Attempt.Epoch})
	}
	w.mu.Lock()
	heard := w.heard[loss.Node]
	w.mu.Unlock()
	allow, silent := w.Cluster.Refuse(loss.Node, heard)
	if !silent {
		return
	}
	defer allow()
	fault.Point("leader.lose.before")
	for {
		index, err := w.do(ctx, c)
		if err == nil || ctx.Err() != nil {
			break
		}
		w.Logger.Warn("lost attempts not recorded", "node", loss.Node, "err", err)
		if index > 0 || !loop.Sleep(ctx, watchPeriod) {
			break // The state has refused it, or the term is over.
		}
	}
	fault.Point("leader.lose.after")
}
