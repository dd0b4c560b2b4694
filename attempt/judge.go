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

// Verdict is what a leader does about nodes after a look at them.
type Verdict struct {
	Changes []Change // To be recorded: all of nodes that are gone, or all of nodes that are back.
	Losses  []Loss   // To be given up; none while there is anything to record.
}

// Judge returns what a leader does that has not heard nodes for so long as
// silence says, false of one that it has not looked at yet. Which nodes are
// down is recorded first, and what is lost is judged by the records: only they
// tell how many nodes vanished at once. Nobody is back before all are recorded
// that are gone: else a brake would end for which those were not counted yet.
// While a brake holds nothing is lost but what a drained node executed.
func Judge(s State, silence func(compute.NodeID) (Silence, bool)) (v Verdict) {
	var gone, back []Change
	for n := range s.Nodes() {
		silent, known := silence(n.ID)
		change := Change{Node: n.ID, State: silent.State(n.State), Silent: silent.For}
		switch {
		case !known || change.State == n.State:
		case change.State == compute.NodeUp:
			back = append(back, change)
		default:
			gone = append(gone, change)
		}
	}
	if v.Changes = gone; len(gone) == 0 {
		v.Changes = back
	}
	if len(v.Changes) > 0 {
		return v
	}
	brake := s.Brake()
	for n := range s.Nodes() {
		silent, known := silence(n.ID)
		if !known || n.State == compute.NodeUp || Holds(brake, n) {
			continue
		}
		if lost := Lost(s.Work(n.ID), silent.For); len(lost) > 0 {
			v.Losses = append(v.Losses, Loss{Node: n.ID, Work: lost})
		}
	}
	return v
}

// Holds reports whether a brake keeps the attempts of a node from being given
// up. A drained node is expected to go.
func Holds(b compute.Brake, n *compute.Node) bool { return !b.Since.IsZero() && !n.Drained }
