package dst

import (
	"time"

	protocol "berth/attempt"
	"berth/compute"
	"berth/fsm"
)

// brake is what the oracle makes by itself of nodes that vanish at once, from
// nothing but which nodes are up in each view.
type brake struct {
	holds  bool
	began  time.Duration
	unsure bool // What happened since the last view is not known.

	gone map[compute.NodeID]compute.Instant // Of those that are down: since when.
	held map[compute.NodeID]bool
}

// watchBrake notes who went and who came back, and whether they are too many: two
// at least within the window, and more than a third of them and of those that are
// up. Nobody lets the brake go here.
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
	case blinked: // Somebody was back in between, which may have let it go.
		b.holds = b.holds && len(view.Vanished()) > 0
	case b.holds && (held < 2 || 3*held <= up+held):
		b.holds = false
	case !b.holds && len(fresh) >= 2 && 3*len(fresh) > up+len(fresh):
		b.holds, b.began, b.held = true, o.w.now, fresh
		o.w.report.Braked++
	}
}

// givesUp holds that a leader which gives attempts up has recorded every node
// that it counts as down: else nobody could tell how many vanished at once.
func (o *oracle) givesUp(view *fsm.View, silent map[compute.NodeID]protocol.Silence) {
	for _, m := range o.w.machines {
		n, known := view.Node(m.node)
		if known && n.State == compute.NodeUp && silent[m.node].For > protocol.NodeTTL {
			o.w.violate("attempts are given up while %s, silent for %v, counts as up", m.name, silent[m.node].For)
		}
	}
}
