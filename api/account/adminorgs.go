package account

import (
	"net/http"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// adminOrgs serves what operators do to organizations.
type adminOrgs struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *adminOrgs) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: edge.Root + "/admin/orgs", Need: edge.NeedOperator,
			Summary: "All organizations of the cluster, by slug.",
			Query:   edge.Type[wire.PageQuery](), Reply: edge.Type[wire.AdminOrgs](), Handle: g.list,
		},
		{
			Method: http.MethodPatch, Path: edge.Root + "/admin/orgs/{org}", Need: edge.NeedOperator,
			Summary: "Trust an organization, or no longer: containers of a trusted one may be placed on nodes that isolate " +
				"them below the minimum.",
			Body: edge.Type[wire.OrgTrust](), Reply: edge.Type[wire.AdminOrg](), Handle: g.trust,
		},
	}
}

// list answers all organizations.
func (g *adminOrgs) list(r *edge.Request) (any, error) {
	out := wire.AdminOrgs{Orgs: []wire.AdminOrg{}}
	for o := range r.View.Orgs() {
		if o.DeletedAt.IsZero() {
			out.Orgs = append(out.Orgs, adminOrgOf(r.View, o))
		}
	}
	var err error
	out.Orgs, err = handler.Paged(r, out.Orgs, func(o *wire.AdminOrg) string { return o.Slug })
	return out, err
}

// trust changes whether an organization is trusted.
func (g *adminOrgs) trust(r *edge.Request) (any, error) {
	slug := r.Params["org"]
	org, ok := r.View.OrgBySlug(slug)
	if !ok { // Operators see all organizations anyway.
		return nil, compute.Errorf(compute.CodeNotFound, "There is no organization %.64q.", slug).Named("not_found")
	}
	if _, err := g.ProposeAndSee(r, command.TrustOrg{
		Op: g.Op(r), Actor: r.Caller.Actor, Org: org.ID, Trusted: *r.Body.(*wire.OrgTrust).Trusted,
	}); err != nil {
		return nil, err
	}
	if now, ok := r.View.Org(org.ID); ok {
		org = now
	}
	return adminOrgOf(r.View, org), nil
}

// adminOrgOf returns an organization as an operator sees it.
func adminOrgOf(view *fsm.View, o *compute.Org) wire.AdminOrg {
	return wire.AdminOrg{
		ID: o.ID, Slug: o.Slug, Name: o.Name, Trusted: o.Trusted, Members: len(view.Members(o.ID)),
		CreatedAt: o.CreatedAt,
	}
}
