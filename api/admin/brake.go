package admin

import (
	"net/http"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/fsm"
	"berth/fsm/command"
)

// brakes serves the circuit breaker for rescheduling, to operators.
type brakes struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *brakes) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: edge.Root + "/admin/brake", Need: edge.NeedOperator,
			Summary: "The circuit breaker for rescheduling: whether it holds, and for which nodes.",
			Reply:   edge.Type[wire.Brake](), Handle: g.brake,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/admin/brake", Need: edge.NeedOperator,
			Summary: "Set the share of lost nodes above which the brake holds, or release it.",
			Body:    edge.Type[wire.NewBrake](), Reply: edge.Type[wire.Brake](), Handle: g.setBrake,
		},
	}
}

// brake answers whether the brake holds, and for which nodes.
func (g *brakes) brake(r *edge.Request) (any, error) { return brakeOf(r.View), nil }

func brakeOf(view *fsm.View) wire.Brake {
	b := view.Brake()
	out := wire.Brake{
		Holds: !b.Since.IsZero(), Since: wire.AtOrNull(b.Since), Share: b.SharePercent,
		ReleasedAt: wire.AtOrNull(b.ReleasedAt), Vanished: []wire.VanishedNode{},
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
	_, err := g.ProposeAndSee(r, command.SetBrake{
		Op: g.Op(r), Actor: r.Caller.Actor, Share: in.Share, Release: in.Release,
	})
	if err != nil {
		return nil, err
	}
	return brakeOf(r.View), nil
}
