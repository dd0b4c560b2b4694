package api

import (
	"slices"
	"strings"

	"berth/api/wire"
)

// listOrgs answers the organizations of the caller. An API key sees only the
// one that it belongs to.
func (s *Server) listOrgs(r *request) (any, error) {
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
