package attempt

import (
	"iter"
	"time"

	"berth/compute"
)

// State is what a leader judges nodes by: package fsm has it.
type State interface {
	Nodes() iter.Seq[*compute.Node]
	Work(compute.NodeID) []compute.Work
	Brake() compute.Brake
}

// Change is that a node's state is another one than is recorded.
type Change struct {
	Node   compute.NodeID
	State  compute.NodeState
	Silent time.Duration
}

// Loss is which live attempts of a node have ended for certain.
type Loss struct {
	Node compute.NodeID
	Work []compute.Work
}

// Verdict is what a leader does about nodes after a look at them, in this order:
// were one that is back recorded first, a brake would end for which others that
// are gone since the same moment have not been counted yet.
type Verdict struct {
	Gone   []Change // Nodes to be recorded as down.
	Back   []Change // Nodes to be recorded as up.
	Losses []Loss   // To be given up; none while there is anything to record.
}

// Changed reports whether there is anything to record.
func (v Verdict) Changed() bool { return len(v.Gone) > 0 || len(v.Back) > 0 }

// Judge returns what a leader does that has not heard nodes for so long as
// silence says, false of one that it has not looked at yet. Which nodes are
// down is recorded first, and what is lost is judged by the records: only they
// tell how many nodes vanished at once. While a brake holds nothing is lost but
// what a drained node executed.
func Judge(s State, silence func(compute.NodeID) (time.Duration, bool)) (v Verdict) {
	for n := range s.Nodes() {
		silent, known := silence(n.ID)
		switch state := StateOf(silent); {
		case !known || state == n.State:
		case state == compute.NodeUp:
			v.Back = append(v.Back, Change{Node: n.ID, State: state, Silent: silent})
		default:
			v.Gone = append(v.Gone, Change{Node: n.ID, State: state, Silent: silent})
		}
	}
	if v.Changed() {
		return v
	}
	brake := s.Brake()
	for n := range s.Nodes() {
		silent, known := silence(n.ID)
		if !known || n.State == compute.NodeUp || Holds(brake, n) {
			continue
		}
		if lost := Lost(s.Work(n.ID), silent); len(lost) > 0 {
			v.Losses = append(v.Losses, Loss{Node: n.ID, Work: lost})
		}
	}
	return v
}

// Holds reports whether a brake keeps the attempts of a node from being given
// up. A drained node is expected to go.
func Holds(b compute.Brake, n *compute.Node) bool { return !b.Since.IsZero() && !n.Drained }
