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

// members serves the members of an organization.
type members struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *members) Routes() []edge.Route {
	const members = edge.Root + "/orgs/{slug}/members"
	return []edge.Route{
		{
			Method: http.MethodGet, Path: members, Tag: "Organizations", Need: edge.NeedOrg,
			Role:    compute.RoleFor(compute.ActUse),
			Summary: "The members of an organization, the first one first.",
			Query:   edge.Type[wire.PageQuery](), Reply: edge.Type[[]wire.Member](), Handle: g.listMembers,
		},
		{
			Method: http.MethodPatch, Path: members + "/{user_id}", Tag: "Organizations", Need: edge.NeedOrg,
			Role:    compute.RoleFor(compute.ActSetRole),
			Summary: "Change the role of a member. An organization keeps at least one owner.",
			Body:    edge.Type[wire.MemberChange](), Reply: edge.Type[wire.Member](), Handle: g.changeMember,
		},
		{
			Method: http.MethodDelete, Path: members + "/{user_id}", Tag: "Organizations", Need: edge.NeedOrg,
			Role: compute.RoleFor(compute.ActUse),
			Summary: "Remove a member, whose API keys of the organization are deleted. Admins remove members, " +
				"owners everybody, and everybody may leave.",
			Reply: edge.Type[wire.Message](), Handle: g.removeMember,
		},
	}
}

// memberOf returns a member as the others see one.
func memberOf(view *fsm.View, m *compute.Membership) wire.Member {
	out := wire.Member{UserID: m.User, Role: m.Role, JoinedAt: m.JoinedAt}
	if u, ok := view.User(m.User); ok {
		out.Email, out.FullName = u.Email, wire.OrNull(u.FullName)
	}
	return out
}

// listMembers answers the members of an organization.
func (g *members) listMembers(r *edge.Request) (any, error) {
	out := []wire.Member{}
	for _, m := range r.View.Members(r.Caller.Actor.Org) {
		out = append(out, memberOf(r.View, m))
	}
	return handler.Paged(r, out, func(m *wire.Member) string { return handler.ByTime(m.JoinedAt, m.UserID) })
}

// member returns the user in the path, who is a member, unless this is a repeat.
func (g *members) member(r *edge.Request) (compute.UserID, error) {
	id, err := compute.ParseUserID(r.Params["user_id"])
	if err != nil {
		return id, edge.NotFound()
	}
	if _, ok := r.View.Membership(r.Caller.Actor.Org, id); !ok && !r.Repeat {
		return id, edge.NotFound()
	}
	return id, nil
}

// changeMember changes the role of a member.
func (g *members) changeMember(r *edge.Request) (any, error) {
	id, err := g.member(r)
	if err != nil {
		return nil, err
	}
	var role compute.OrgRole
	if err := role.UnmarshalText([]byte(r.Body.(*wire.MemberChange).Role)); err != nil {
		return nil, err
	}
	org := r.Caller.Actor.Org
	_, err = g.ProposeAndSee(r, command.SetMember{Op: g.Op(r), Actor: r.Caller.Actor, Org: org, User: id, Role: role})
	if err != nil {
		return nil, err
	}
	m, ok := r.View.Membership(org, id)
	if !ok {
		return nil, edge.NotFound()
	}
	return memberOf(r.View, m), nil
}

// removeMember ends a membership.
func (g *members) removeMember(r *edge.Request) (any, error) {
	id, err := g.member(r)
	if err != nil {
		return nil, err
	}
	_, err = g.Propose(r, command.RemoveMember{
		Op: g.Op(r), Actor: r.Caller.Actor, Org: r.Caller.Actor.Org, User: id,
	})
	if err != nil {
		return nil, err
	}
	return wire.Message{Message: "The member is removed."}, nil
}
