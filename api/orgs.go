package api

import (
	"net/http"
	"slices"
	"strings"

	"berth/api/edge"
	"berth/api/wire"
)

// orgs serves Organizations, and the caller's status and quotas.
type orgs struct {
	*core
}

// routes returns the routes of the group.
func (g *orgs) routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: root + "/orgs", Tag: "Organizations", Need: edge.NeedCaller,
			Summary: "The organizations of the caller.",
			Reply:   of[[]wire.Org](), Handle: g.listOrgs,
		},
		{
			Method: http.MethodGet, Path: root + "/user/status", Tag: "Account", Need: edge.NeedCaller,
			Summary: "The caller and the available credits.",
			Reply:   of[wire.UserStatus](), Handle: g.userStatus,
		},
		{
			Method: http.MethodGet, Path: root + "/user/quotas", Tag: "User Quotas", Need: edge.NeedCaller,
			Summary: "The organization's limits and usage.",
			Reply:   of[wire.Quotas](), Handle: g.quotas,
		},
		{
			Method: http.MethodGet, Path: root + "/user/quotas/available-hardware", Tag: "User Quotas", Need: edge.NeedCaller,
			Summary: "The hardware profiles that the organization may use.",
			Reply:   of[wire.AvailableHardware](), Handle: g.availableHardware,
		},
	}
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
		out = append(out, wire.Org{
			ID: org.ID, Slug: org.Slug, Name: org.Name, BillingEmail: orNull(org.BillingEmail),
			Role: m.Role, IsDefault: m.Default, CreatedAt: org.CreatedAt,
		})
	}
	slices.SortFunc(out, func(a, b wire.Org) int { return strings.Compare(a.Slug, b.Slug) })
	return out, nil
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
		UserID: user.ID, OrgID: org.ID, Email: user.Email, FullName: orNull(user.FullName),
		CreatedAt: user.CreatedAt, IsActive: user.Active, ActiveKeys: active,
		CreditBalance: r.View.Account(org.ID).Available(), Status: "authenticated",
	}, nil
}

// availableHardware answers the profiles that the organization may use.
func (g *orgs) availableHardware(r *edge.Request) (any, error) {
	return wire.AvailableHardware{Profiles: append([]string{}, r.View.Profiles()...)}, nil
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
	own := r.View.Quotas(org)[0]
	out := wire.Quotas{
		Quotas: []wire.Quota{}, MaxConcurrentRuns: own.Concurrent, MaxGPUs: gpusFor(r.View, own),
		Limits: limitsOf(r.View, org), FairShare: fairShareOf(r.View, org),
	}
	for _, profile := range r.View.Profiles() {
		out.Quotas = append(out.Quotas, wire.Quota{
			HardwareProfile: profile, Allowed: true, MaxConcurrent: own.Concurrent, InUse: used[profile],
		})
	}
	return out, nil
}
