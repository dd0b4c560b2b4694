package api

import (
	"net/http"

	"berth/api/edge"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// brakes serves the circuit breaker for rescheduling, to operators.
type brakes struct {
	*core
}

// routes returns the routes of the group.
func (g *brakes) routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: root + "/admin/brake", Need: edge.NeedOperator,
			Summary: "The circuit breaker for rescheduling: whether it holds, and for which nodes.",
			Reply:   of[wire.Brake](), Handle: g.brake,
		},
		{
			Method: http.MethodPost, Path: root + "/admin/brake", Need: edge.NeedOperator,
			Summary: "Set the share of lost nodes above which the brake holds, or release it.",
			Body:    of[wire.NewBrake](), Reply: of[wire.Brake](), Handle: g.setBrake,
		},
	}
}

// brake answers whether the brake holds, and for which nodes.
func (g *brakes) brake(r *edge.Request) (any, error) { return brakeOf(r.View), nil }

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

// setBrake sets the share of nodes above which the brake holds, or releases it.
func (g *brakes) setBrake(r *edge.Request) (any, error) {
	in := r.Body.(*wire.NewBrake)
	_, err := g.ProposeAndSee(r, fsm.SetBrake{
		Op: g.Op(r), Actor: r.Caller.Actor, Share: in.Share, Release: in.Release,
	})
	if err != nil {
		return nil, err
	}
	return brakeOf(r.View), nil
}

// brakeHolding returns the brake if it keeps the attempt of e, whose node is
// down, from being given up; nil otherwise.
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
