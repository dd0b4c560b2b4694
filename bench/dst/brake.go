package dst

import (
	"time"

	protocol "berth/attempt"
	"berth/compute"
	"berth/fsm"
)

// brake is the oracle's own circuit breaker for rescheduling. It detects nodes
// that vanish at once only from the set of up nodes in each view.
type brake struct {
	holds  bool
	began  time.Duration
	unsure bool // Events since the last view are unknown.

	gone map[compute.NodeID]compute.Instant // When each down node went down.
	held map[compute.NodeID]bool
}

// watchBrake records nodes that go down and come back, and whether too many are
// gone. Too many are at least two within the window and more than a third of
// them and the up nodes together. No operator releases the breaker here.
func (o *oracle) watchBrake(view *fsm.View) {
	b := &o.brake
	b.unsure = false
	if b.gone == nil {
		b.gone, b.held = map[compute.NodeID]compute.Instant{}, map[compute.NodeID]bool{}
	}
	up, fresh, blinked := 0, map[compute.NodeID]bool{}, false
	for n := range view.Nodes() {
		if n.State == compute.NodeUp {
			up++
			delete(b.gone, n.ID)
			delete(b.held, n.ID)
			continue
		}
		at, known := b.gone[n.ID]
		blinked = blinked || known && at != n.ChangedAt
		if !known {
			b.held[n.ID] = b.holds
		}
		b.gone[n.ID] = n.ChangedAt
		if n.Drained {
			b.held[n.ID] = false
		} else if view.Now().Sub(b.gone[n.ID]) <= protocol.BrakeWindow {
			fresh[n.ID] = true
		}
	}
	held := 0
	for _, is := range b.held {
		if is {
			held++
		}
	}
	switch {
	case blinked: // A node was back in between, which may have released it.
		b.holds = b.holds && len(view.Vanished()) > 0
	case b.holds && (held < 2 || 3*held <= up+held):
		b.holds = false
	case !b.holds && len(fresh) >= 2 && 3*len(fresh) > up+len(fresh):
		b.holds, b.began, b.held = true, o.w.now, fresh
		o.w.report.Braked++
	}
}

// checkLosses checks that a leader records every node it counts as down before
// it gives up attempts. Otherwise the number of nodes that vanished at once is
// unknown.
func (o *oracle) checkLosses(view *fsm.View, silent map[compute.NodeID]protocol.Silence) {
	for _, m := range o.w.machines {
		n, known := view.Node(m.node)
		if known && n.State == compute.NodeUp && silent[m.node].For > protocol.NodeTTL {
			o.w.violate("attempts are given up while %s, silent for %v, counts as up", m.name, silent[m.node].For)
		}
	}
}
