package billing

import (
	"net/http"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// budgets serves the budgets and ceilings of an organization.
type budgets struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *budgets) Routes() []edge.Route {
	const budgets = edge.Root + "/orgs/{slug}/budgets"
	return []edge.Route{
		{
			Method: http.MethodGet, Path: budgets, Tag: "Organizations", Need: edge.NeedOrg,
			Role:    compute.RoleFor(compute.ActManageKeys),
			Summary: "The budgets of the organization, of its API keys and of its members, with what is spent.",
			Query:   edge.Type[wire.PageQuery](), Reply: edge.Type[[]wire.Budget](), Handle: g.list,
		},
		{
			Method: http.MethodPut, Path: budgets, Tag: "Organizations", Need: edge.NeedOrg,
			Role: compute.RoleFor(compute.ActManageKeys),
			Summary: "Set a budget of an API key or, as an owner, of a member or the organization. " +
				"With enforce it is a ceiling. The amount charged so far stays.",
			Body: edge.Type[wire.NewBudget](), Reply: edge.Type[wire.Budget](), Handle: g.set,
		},
		{
			Method: http.MethodDelete, Path: budgets + "/{id}", Tag: "Organizations", Need: edge.NeedOrg,
			Role: compute.RoleFor(compute.ActManageKeys),
			Summary: "Remove the budget of an API key or of a member, by its identifier, " +
				"or the organization's own: organization.",
			Reply: edge.Type[wire.Message](), Handle: g.remove,
		},
	}
}

// budgetOf returns a budget as its organization sees it.
func budgetOf(view *fsm.View, b *compute.Budget) wire.Budget {
	out := wire.Budget{
		Scope: wire.WholeOrg, MaxCredits: b.MaxCredits, Period: wire.BudgetPeriod(b.Monthly), Enforce: b.Enforce,
		CallbackURL: wire.OrNull(b.URL), Level: b.Level, ChangedAt: b.ChangedAt,
	}
	out.Charged, out.Held = view.Spent(b)
	out.Scope, out.KeyID, out.UserID = wire.BudgetScope(b.Key, b.User)
	return out
}

// list answers the budgets of an organization, its own first.
func (g *budgets) list(r *edge.Request) (any, error) {
	out := []wire.Budget{}
	for _, b := range r.View.Budgets(r.Caller.Actor.Org) {
		out = append(out, budgetOf(r.View, b))
	}
	return handler.Paged(r, out, func(b *wire.Budget) string {
		switch {
		case b.KeyID != nil:
			return "key " + b.KeyID.String()
		case b.UserID != nil:
			return "member " + b.UserID.String()
		}
		return ""
	})
}

// set gives an organization, a key or a member a budget.
func (g *budgets) set(r *edge.Request) (any, error) {
	in := r.Body.(*wire.NewBudget)
	b := compute.Budget{
		Org: r.Caller.Actor.Org, MaxCredits: in.MaxCredits, Monthly: in.Period == "month",
		Enforce: in.Enforce, URL: in.CallbackURL,
	}
	var err error
	if in.KeyID != "" {
		if b.Key, err = compute.ParseKeyID(in.KeyID); err != nil {
			return nil, edge.NotFound()
		}
	}
	if in.UserID != "" {
		if b.User, err = compute.ParseUserID(in.UserID); err != nil {
			return nil, edge.NotFound()
		}
	}
	if _, err := g.ProposeAndSee(r, command.SetBudget{Op: g.Op(r), Actor: r.Caller.Actor, Budget: b}); err != nil {
		return nil, err
	}
	stored, ok := r.View.Budget(b.Org, b.Key, b.User)
	if !ok {
		return nil, edge.NotFound()
	}
	return budgetOf(r.View, stored), nil
}

// remove removes a budget.
func (g *budgets) remove(r *edge.Request) (any, error) {
	cmd := command.RemoveBudget{Op: g.Op(r), Actor: r.Caller.Actor, Org: r.Caller.Actor.Org}
	if id := r.Params["id"]; id != wire.WholeOrg {
		key, err := compute.ParseKeyID(id)
		if err != nil {
			return nil, edge.NotFound()
		}
		if cmd.Key = key; !r.Repeat {
			if _, ok := r.View.Budget(cmd.Org, key, compute.UserID{}); !ok {
				cmd.Key, cmd.User = compute.KeyID{}, compute.UserID(key)
			}
		}
	}
	if _, ok := r.View.Budget(cmd.Org, cmd.Key, cmd.User); !ok && !r.Repeat {
		return nil, edge.NotFound()
	}
	if _, err := g.Propose(r, cmd); err != nil {
		return nil, err
	}
	return wire.Message{Message: "The budget is removed."}, nil
}
