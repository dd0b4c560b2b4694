package account

import (
	"net/http"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// orgs serves Organizations, and the caller's status and quotas.
type orgs struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *orgs) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: edge.Root + "/orgs", Tag: "Organizations", Need: edge.NeedUser,
			Summary: "The organizations of the caller.",
			Query:   edge.Type[wire.PageQuery](), Reply: edge.Type[[]wire.Org](), Handle: g.listOrgs,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/orgs", Tag: "Organizations", Need: edge.NeedUser,
			Summary: "Make an organization, whose owner the caller is. It has no credits at first.",
			Body:    edge.Type[wire.NewOrg](), Reply: edge.Type[wire.Org](), Handle: g.createOrg,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/orgs/{slug}", Tag: "Organizations", Need: edge.NeedOrg,
			Summary: "An organization of the caller.",
			Reply:   edge.Type[wire.Org](), Handle: g.org,
		},
		{
			Method: http.MethodPatch, Path: edge.Root + "/orgs/{slug}", Tag: "Organizations", Need: edge.NeedOrg,
			Role: compute.RoleFor(compute.ActRename),
			Summary: "Change the name or billing address of an organization, or, as an owner, its slug. " +
				"The old slug is free from then on.",
			Body: edge.Type[wire.OrgChange](), Reply: edge.Type[wire.Org](), Handle: g.changeOrg,
		},
		{
			Method: http.MethodDelete, Path: edge.Root + "/orgs/{slug}", Tag: "Organizations", Need: edge.NeedOrg,
			Role: compute.RoleFor(compute.ActDelete),
			Summary: "Delete an organization that has no live executions, with its memberships, keys, invites and secrets. " +
				"Its ledger and history stay on record, and its credits are lost.",
			Reply: edge.Type[wire.Message](), Handle: g.deleteOrg,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/orgs/{slug}/default", Tag: "Organizations", Need: edge.NeedOrg,
			Summary: "Make an organization the caller's default one, in which requests without X-Org-Slug act.",
			Reply:   edge.Type[wire.Org](), Handle: g.setDefault,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/user/status", Tag: "Account", Need: edge.NeedCaller,
			Summary: "The caller and the available credits.",
			Reply:   edge.Type[wire.UserStatus](), Handle: g.userStatus,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/user/quotas", Tag: "User Quotas", Need: edge.NeedCaller,
			Summary: "The organization's limits and usage.",
			Reply:   edge.Type[wire.Quotas](), Handle: g.quotas,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/user/quotas/available-hardware", Tag: "User Quotas",
			Need:    edge.NeedCaller,
			Summary: "The hardware profiles that the organization may use.",
			Reply:   edge.Type[wire.AvailableHardware](), Handle: g.availableHardware,
		},
	}
}

// orgOf returns an organization as a member sees it.
func orgOf(org *compute.Org, m *compute.Membership) wire.Org {
	return wire.Org{
		ID: org.ID, Slug: org.Slug, Name: org.Name, BillingEmail: wire.OrNull(org.BillingEmail),
		Role: m.Role, IsDefault: m.Default, CreatedAt: org.CreatedAt,
	}
}

// seen returns an organization as the caller sees it now.
func (g *orgs) seen(r *edge.Request, id compute.OrgID) (any, error) {
	org, ok := r.View.Org(id)
	m, member := r.View.Membership(id, r.Caller.Actor.User)
	if !ok || !member {
		return nil, edge.NotFound()
	}
	return orgOf(org, m), nil
}

// org answers one organization.
func (g *orgs) org(r *edge.Request) (any, error) { return g.seen(r, r.Caller.Actor.Org) }

// createOrg makes an organization.
func (g *orgs) createOrg(r *edge.Request) (any, error) {
	if err := r.View.AllowsOrgs(); err != nil {
		return nil, err
	}
	in := r.Body.(*wire.NewOrg)
	result, err := g.ProposeAndSee(r, command.CreateOrg{Op: g.Op(r), Actor: r.Caller.Actor, Org: compute.Org{
		ID: compute.OrgID{UUID: g.NewID()}, Slug: in.Slug, Name: in.Name, BillingEmail: r.Caller.User.Email,
	}})
	if err != nil {
		return nil, err
	}
	return g.seen(r, compute.OrgID{UUID: result.ID})
}

// changeOrg changes an organization.
func (g *orgs) changeOrg(r *edge.Request) (any, error) {
	if err := r.View.AllowsOrgs(); err != nil {
		return nil, err
	}
	in, id := r.Body.(*wire.OrgChange), r.Caller.Actor.Org
	_, err := g.ProposeAndSee(r, command.SetOrg{
		Op: g.Op(r), Actor: r.Caller.Actor, Org: id, Name: in.Name, Slug: in.Slug, BillingEmail: in.BillingEmail,
	})
	if err != nil {
		return nil, err
	}
	return g.seen(r, id)
}

// deleteOrg ends an organization.
func (g *orgs) deleteOrg(r *edge.Request) (any, error) {
	if err := r.View.AllowsOrgs(); err != nil {
		return nil, err
	}
	slug := r.Caller.Org.Slug
	_, err := g.Propose(r, command.DeleteOrg{Op: g.Op(r), Actor: r.Caller.Actor, Org: r.Caller.Actor.Org})
	if err != nil {
		return nil, err
	}
	return wire.Message{Message: "The organization " + slug + " is deleted."}, nil
}

// setDefault makes an organization the caller's default one.
func (g *orgs) setDefault(r *edge.Request) (any, error) {
	if err := r.View.AllowsOrgs(); err != nil {
		return nil, err
	}
	id := r.Caller.Actor.Org
	_, err := g.ProposeAndSee(r, command.SetDefaultOrg{Op: g.Op(r), Actor: r.Caller.Actor, Org: id})
	if err != nil {
		return nil, err
	}
	return g.seen(r, id)
}

// listOrgs answers the organizations of the caller. An API key sees only its
// own.
func (g *orgs) listOrgs(r *edge.Request) (any, error) {
	out := []wire.Org{}
	for _, m := range r.View.Memberships(r.Caller.Actor.User) {
		org, ok := r.View.Org(m.Org)
		if !ok || (!r.Caller.Actor.Key.IsZero() && org.ID != r.Caller.Actor.Org) {
			continue
		}
		out = append(out, orgOf(org, m))
	}
	return handler.Paged(r, out, func(o *wire.Org) string { return o.Slug })
}

// userStatus answers the caller's identity.
func (g *orgs) userStatus(r *edge.Request) (any, error) {
	user, org := r.Caller.User, r.Caller.Org
	active := 0
	for _, k := range r.View.Keys(org.ID) {
		if k.Active && (k.ExpiresAt.IsZero() || k.ExpiresAt > r.View.Now()) {
			active++
		}
	}
	return wire.UserStatus{
		UserID: user.ID, OrgID: org.ID, Email: user.Email, FullName: wire.OrNull(user.FullName),
		CreatedAt: user.CreatedAt, IsActive: user.Active, ActiveKeys: active,
		CreditBalance: r.View.Account(org.ID).Available(), Status: "authenticated",
	}, nil
}

// availableHardware answers the profiles that the organization may use and that nodes which take
// new work have, be they busy or not.
func (g *orgs) availableHardware(r *edge.Request) (any, error) {
	nodes, open := handler.CapacitiesOf(r.View), []string{}
	for _, name := range r.View.Profiles() {
		if r.View.Denies(r.Caller.Actor.Org, name) {
			continue
		}
		if _, request, _, err := r.View.Resolve(name); err == nil && nodes.Opens(request) {
			open = append(open, name)
		}
	}
	return wire.AvailableHardware{Profiles: open}, nil
}

// quotas answers the organization's limits and usage.
func (g *orgs) quotas(r *edge.Request) (any, error) {
	org := r.Caller.Actor.Org
	used := make(map[string]int)
	for e := range r.View.Live(org) {
		if e.Epoch > 0 {
			used[e.Profile]++
		}
	}
	quotas := r.View.Quotas(org)
	own := quotas[0]
	out := wire.Quotas{
		Quotas: []wire.Quota{}, MaxConcurrentRuns: own.Concurrent, MaxGPUs: gpusFor(r.View, own),
		Limits: limitsOf(r.View, org), FairShare: fairShareOf(r.View, org),
	}
	for _, profile := range r.View.Profiles() {
		out.Quotas = append(out.Quotas, wire.Quota{
			HardwareProfile: profile, Allowed: !r.View.Denies(org, profile),
			MaxConcurrent: concurrentOn(quotas, profile), InUse: used[profile],
		})
	}
	return out, nil
}

// concurrentOn returns the lowest limit of executions at once, of an organization with these
// quotas, that counts all its work on a hardware profile; 0 for none.
func concurrentOn(quotas []compute.Quota, profile string) (least int) {
	for i := range quotas {
		q := &quotas[i]
		counts := q.AppliesTo(&compute.Execution{Org: q.Org, Profile: profile})
		if counts && q.Concurrent > 0 && (least == 0 || q.Concurrent < least) {
			least = q.Concurrent
		}
	}
	return least
}
