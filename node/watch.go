package node

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/attempt"
	"berth/compute"
	"berth/fault"
	"berth/fsm"
)

// watch is how a leader looks after nodes that it does not hear. One goroutine
// counts their silence, on time whatever the cluster does; another one, which
// waits for the state to take its word, acts on it.
type watch struct {
	*leader

	began  time.Time
	braked bool // Of the last round; of the one who acts.

	mu sync.Mutex

	counter *attempt.Watch
	silent  map[compute.NodeID]time.Duration // By the last look.
}

// newWatch returns the watch of a term that begins: every node has its full
// time.
func (l *leader) newWatch() *watch {
	return &watch{
		leader: l, began: l.now(), counter: attempt.NewWatch(), silent: map[compute.NodeID]time.Duration{},
	}
}

// look counts for how long each node was not heard.
func (w *watch) look() {
	view := w.machine.View()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counter.Look(w.now().Sub(w.began))
	clear(w.silent)
	for node := range view.Nodes() {
		if heard, leads := w.cluster.Heard(node.ID); leads {
			w.silent[node.ID] = w.counter.Silent(node.ID, heard.Sub(w.began))
		}
	}
}

// silence returns for how long a node was not heard, false before the first
// look at it.
func (w *watch) silence(node compute.NodeID) (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	silent, known := w.silent[node]
	return silent, known
}

// act records which nodes are heard, and gives up the attempts that have ended
// for certain on those that are not, unless too many vanished at once.
func (w *watch) act(ctx context.Context, term uint64) {
	view := w.machine.View()
	w.brake(view.Vanished())
	for node := range view.Nodes() {
		silent, known := w.silence(node.ID)
		if !known {
			continue
		}
		state := attempt.StateOf(silent)
		if state != node.State {
			w.logger.Warn("node changed", "node", node.ID, "status", state, "took", silent)
			fault.Point("leader.node_state.before")
			_, err := w.do(ctx, fsm.SetNodeState{Term: term, Node: node.ID, State: state})
			if err != nil && ctx.Err() == nil {
				w.logger.Warn("node state not recorded", "node", node.ID, "err", err)
			}
			fault.Point("leader.node_state.after")
		}
		if state == compute.NodeDown && !w.braked {
			w.giveUp(ctx, term, node.ID, attempt.Lost(view.Work(node.ID), silent))
		}
	}
}

// brake notes whether too many nodes vanished at once, and tells when that
// begins and ends.
func (w *watch) brake(vanished []*compute.Node) {
	braked := len(vanished) > 0
	switch {
	case braked && !w.braked:
		for _, node := range vanished {
			w.logger.Error("too many nodes vanished at once: no attempt is given up", "node", node.ID)
		}
	case !braked && w.braked:
		w.logger.Info("nodes are given up again when they are lost")
	}
	w.braked = braked
}

// giveUp has the state end attempts of a node, or start them elsewhere.
func (w *watch) giveUp(ctx context.Context, term uint64, node compute.NodeID, lost []compute.Work) {
	if len(lost) == 0 {
		return
	}
	c := fsm.LoseAttempts{Term: term, Node: node}
	for _, work := range lost {
		c.Attempts = append(c.Attempts, fsm.AttemptRef{Execution: work.Attempt.Execution, Epoch: work.Attempt.Epoch})
	}
	fault.Point("leader.lose.before")
	if _, err := w.do(ctx, c); err != nil && ctx.Err() == nil {
		w.logger.Warn("lost attempts not recorded", "node", node, "err", err)
	}
	fault.Point("leader.lose.after")
}

// brakeGauge returns a gauge of how many nodes hold the brake, which every node
// reads in its own view.
func brakeGauge(machine *fsm.FSM) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_brake_nodes",
		Help: "Nodes that vanished at once and are too many to be given up; 0 while attempts are given up as usual.",
	}, func() float64 { return float64(len(machine.View().Vanished())) })
}
