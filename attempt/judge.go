package attempt

import (
	"iter"
	"time"

	"berth/compute"
)

// State is the part of the state by which a leader judges nodes; package fsm
// implements it.
type State interface {
	Nodes() iter.Seq[*compute.Node]
	Work(compute.NodeID) []compute.Work
	Brake() compute.Brake
}

// Change is a node's state that differs from the recorded one.
type Change struct {
	Node   compute.NodeID
	State  compute.NodeState
	Silent time.Duration
}

// Loss is the live attempts of a node that have certainly ended.
type Loss struct {
	Node compute.NodeID
	Work []compute.Work
}

// Verdict lists the actions of a leader after checking the nodes.
type Verdict struct {
	Changes []Change // To be recorded: all of nodes that are gone, or all of nodes that are back.
	Losses  []Loss   // To be given up; none while there is anything to record.
}

// Judge returns the leader's actions, given how long each node was silent. Silence is
// false for a node that was not checked yet. Down nodes are recorded first, and
// losses are judged by the records, which show how many nodes vanished at once.
// Nodes that are back are recorded only after all that are gone: else a brake could
// end before these are counted. While a brake holds, only attempts of drained nodes
// are lost.
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
