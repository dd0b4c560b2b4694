package api

import (
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// brake answers whether too many nodes have vanished at once, and which.
func (s *Server) brake(r *request) (any, error) { return brakeOf(r.view), nil }

func brakeOf(view *fsm.View) wire.Brake {
	b := view.Brake()
	out := wire.Brake{
		Holds: !b.Since.IsZero(), Since: atOrNull(b.Since), Share: b.SharePercent, ReleasedAt: atOrNull(b.ReleasedAt),
		Vanished: []wire.VanishedNode{},
	}
	for _, n := range view.Vanished() {
		out.Vanished = append(out.Vanished, wire.VanishedNode{
			ID: n.ID, Name: n.Name, DownAt: n.ChangedAt, LiveWork: len(view.Work(n.ID)),
		})
	}
	return out
}

// setBrake says which share of nodes is too many, or that those which vanished
// are gone.
func (s *Server) setBrake(r *request) (any, error) {
	in := r.body.(*wire.NewBrake)
	_, err := s.proposeAndSee(r, fsm.SetBrake{
		Op: s.op(r), Actor: r.caller.actor, Share: in.Share, Release: in.Release,
	})
	if err != nil {
		return nil, err
	}
	return brakeOf(r.view), nil
}

// brakeHolding returns why the attempt of e is not given up although its node is
// down; nil while the node is heard, or is given up as usual.
func brakeHolding(view *fsm.View, e *compute.Execution) *wire.BrakeHold {
	attempts := view.Attempts(e.ID)
	if len(attempts) == 0 || view.Brake().Since.IsZero() {
		return nil
	}
	a := attempts[len(attempts)-1]
	n, known := view.Node(a.Node)
	if a.Ended || !known || n.State == compute.NodeUp || n.Drained {
		return nil
	}
	up := 0
	for n := range view.Nodes() {
		if n.State == compute.NodeUp {
			up++
		}
	}
	return &wire.BrakeHold{
		Node: n.Name, DownAt: n.ChangedAt, Since: view.Brake().Since, Vanished: len(view.Vanished()), Up: up,
	}
}
