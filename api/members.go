package api

import (
	"net/http"
	"time"

	"berth/api/edge"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// members serves join tokens and users, to operators.
type members struct {
	*core
}

// routes returns the routes of the group.
func (g *members) routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodPost, Path: root + "/admin/join-tokens", Need: edge.NeedOperator, Once: true,
			Summary: "Create a join token for nodes. It is shown this once.",
			Body:    of[wire.NewJoinToken](), Reply: of[wire.JoinToken](), Handle: g.createJoinToken,
		},
		{
			Method: http.MethodPost, Path: root + "/admin/users", Need: edge.NeedOperator,
			Summary: "Create a user with an organization of its own.",
			Body:    of[wire.NewUser](), Reply: of[wire.User](), Handle: g.createUser,
		},
	}
}

// createJoinToken makes a token with which nodes join. Its text is in this
// answer and nowhere else.
func (g *members) createJoinToken(r *edge.Request) (any, error) {
	in := r.Body.(*wire.NewJoinToken)
	role := compute.RoleServer
	if in.Role == compute.RoleWorker.String() {
		role = compute.RoleWorker
	}
	text, record, err := g.cfg.NewJoinToken(role, time.Duration(in.TTL)*time.Second, in.Uses)
	if err != nil {
		return nil, err
	}
	result, err := g.ProposeAndSee(r, fsm.CreateJoinToken{Op: g.Op(r), Actor: r.Caller.Actor, Token: record})
	if err != nil {
		return nil, err
	}
	if result.Repeat && !knowsJoinToken(r.View, record.ID) {
		return nil, errSecretGone("join token", "")
	}
	return wire.JoinToken{
		Token: text, ID: record.ID, Role: record.Role, Uses: record.Uses, ExpiresAt: record.ExpiresAt,
	}, nil
}

// knowsJoinToken reports whether the state has a join token.
func knowsJoinToken(view *fsm.View, id string) bool {
	for t := range view.JoinTokens() {
		if t.ID == id {
			return true
		}
	}
	return false
}

// createUser makes a user with an organization of its own.
func (g *members) createUser(r *edge.Request) (any, error) {
	in := r.Body.(*wire.NewUser)
	hash, err := g.Credentials.HashPassword(r, in.Password)
	if err != nil {
		return nil, err
	}
	user := compute.User{
		ID: compute.UserID{UUID: g.NewID()}, Email: in.Email, FullName: in.FullName,
		PasswordHash: hash, Active: true, Operator: in.Operator,
	}
	org := compute.Org{
		ID: compute.OrgID{UUID: g.NewID()}, Slug: in.OrgSlug, Name: in.OrgName, BillingEmail: in.Email,
	}
	if org.Name == "" {
		org.Name = org.Slug
	}
	_, err = g.ProposeAndSee(r, fsm.CreateUser{Op: g.Op(r), Actor: r.Caller.Actor, User: user, Org: org})
	if err != nil {
		return nil, err
	}
	// A repeat finds the user that the first request made.
	made, ok := r.View.UserByEmail(in.Email)
	own, ok2 := r.View.OrgBySlug(in.OrgSlug)
	if !ok || !ok2 {
		return nil, edge.NotFound()
	}
	return wire.User{
		UserID: made.ID, Email: made.Email, FullName: orNull(made.FullName), Operator: made.Operator,
		OrgID: own.ID, OrgSlug: own.Slug,
	}, nil
}
