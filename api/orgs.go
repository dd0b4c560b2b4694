package api

import (
	"net/http"
	"slices"
	"strings"

	"berth/api/wire"
)

// orgs serves Organizations, and the caller's status and quotas.
type orgs struct {
	*core
}

// routes returns the routes of the group.
func (g *orgs) routes() []route {
	return []route{
		{
			method: http.MethodGet, path: root + "/orgs", tag: "Organizations", need: needCaller,
			summary: "The organizations of the caller.",
			reply:   of[[]wire.Org](), handle: g.listOrgs,
		},
		{
			method: http.MethodGet, path: root + "/user/status", tag: "Account", need: needCaller,
			summary: "The caller and the available credits.",
			reply:   of[wire.UserStatus](), handle: g.userStatus,
		},
		{
			method: http.MethodGet, path: root + "/user/quotas", tag: "User Quotas", need: needCaller,
			summary: "The organization's limits and usage.",
			reply:   of[wire.Quotas](), handle: g.quotas,
		},
		{
			method: http.MethodGet, path: root + "/user/quotas/available-hardware", tag: "User Quotas", need: needCaller,
			summary: "The hardware profiles that the organization may use.",
			reply:   of[wire.AvailableHardware](), handle: g.availableHardware,
		},
	}
}

// listOrgs answers the organizations of the caller. An API key sees only its
// own.
func (g *orgs) listOrgs(r *request) (any, error) {
	out := []wire.Org{}
	for _, m := range r.view.Memberships(r.caller.actor.User) {
		org, ok := r.view.Org(m.Org)
		if !ok || (!r.caller.actor.Key.IsZero() && org.ID != r.caller.actor.Org) {
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
func (g *orgs) userStatus(r *request) (any, error) {
	user, org := r.caller.user, r.caller.org
	active := 0
	for _, k := range r.view.Keys(org.ID) {
		if k.Active && (k.ExpiresAt.IsZero() || k.ExpiresAt > r.view.Now()) {
			active++
		}
	}
	return wire.UserStatus{
		UserID: user.ID, OrgID: org.ID, Email: user.Email, FullName: orNull(user.FullName),
		CreatedAt: user.CreatedAt, IsActive: user.Active, ActiveKeys: active,
		CreditBalance: r.view.Account(org.ID).Available(), Status: "authenticated",
	}, nil
}

// availableHardware answers the profiles that the organization may use.
func (g *orgs) availableHardware(r *request) (any, error) {
	return wire.AvailableHardware{Profiles: append([]string{}, r.view.Profiles()...)}, nil
}

// quotas answers the organization's limits and usage.
func (g *orgs) quotas(r *request) (any, error) {
	org := r.caller.actor.Org
	used := make(map[string]int)
	for e := range r.view.Live(org) {
		if e.Epoch > 0 {
			used[e.Profile]++
		}
	}
	own := r.view.Quotas(org)[0]
	out := wire.Quotas{
		Quotas: []wire.Quota{}, MaxConcurrentRuns: own.Concurrent, MaxGPUs: gpusFor(r.view, own),
		Limits: limitsOf(r.view, org), FairShare: fairShareOf(r.view, org),
	}
	for _, profile := range r.view.Profiles() {
		out.Quotas = append(out.Quotas, wire.Quota{
			HardwareProfile: profile, Allowed: true, MaxConcurrent: own.Concurrent, InUse: used[profile],
		})
	}
	return out, nil
}
