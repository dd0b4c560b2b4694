package api

import (
	"net/http"
	"time"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// members serves join tokens and users, to operators.
type members struct {
	*core
}

// routes returns the routes of the group.
func (g *members) routes() []route {
	return []route{
		{
			method: http.MethodPost, path: root + "/admin/join-tokens", need: needOperator, once: true,
			summary: "Create a join token for nodes. It is shown this once.",
			body:    of[wire.NewJoinToken](), reply: of[wire.JoinToken](), handle: g.createJoinToken,
		},
		{
			method: http.MethodPost, path: root + "/admin/users", need: needOperator,
			summary: "Create a user with an organization of its own.",
			body:    of[wire.NewUser](), reply: of[wire.User](), handle: g.createUser,
		},
	}
}

// createJoinToken makes a token with which nodes join. Its text is in this
// answer and nowhere else.
func (g *members) createJoinToken(r *request) (any, error) {
	in := r.body.(*wire.NewJoinToken)
	role := compute.RoleServer
	if in.Role == compute.RoleWorker.String() {
		role = compute.RoleWorker
	}
	text, record, err := g.cfg.NewJoinToken(role, time.Duration(in.TTL)*time.Second, in.Uses)
	if err != nil {
		return nil, err
	}
	result, err := g.proposeAndSee(r, fsm.CreateJoinToken{Op: g.op(r), Actor: r.caller.actor, Token: record})
	if err != nil {
		return nil, err
	}
	if result.Repeat && !knowsJoinToken(r.view, record.ID) {
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
func (g *members) createUser(r *request) (any, error) {
	in := r.body.(*wire.NewUser)
	hash, err := g.credentials.hashPassword(r.ctx, in.Password)
	if err != nil {
		return nil, err
	}
	user := compute.User{
		ID: compute.UserID{UUID: g.newID()}, Email: in.Email, FullName: in.FullName,
		PasswordHash: hash, Active: true, Operator: in.Operator,
	}
	org := compute.Org{
		ID: compute.OrgID{UUID: g.newID()}, Slug: in.OrgSlug, Name: in.OrgName, BillingEmail: in.Email,
	}
	if org.Name == "" {
		org.Name = org.Slug
	}
	_, err = g.proposeAndSee(r, fsm.CreateUser{Op: g.op(r), Actor: r.caller.actor, User: user, Org: org})
	if err != nil {
		return nil, err
	}
	// A repeat finds the user that the first request made.
	made, ok := r.view.UserByEmail(in.Email)
	own, ok2 := r.view.OrgBySlug(in.OrgSlug)
	if !ok || !ok2 {
		return nil, errNotFound()
	}
	return wire.User{
		UserID: made.ID, Email: made.Email, FullName: orNull(made.FullName), Operator: made.Operator,
		OrgID: own.ID, OrgSlug: own.Slug,
	}, nil
}
