package account

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// inviteSecret is the number of random bytes in the token of an invite.
const inviteSecret = 32

// inviteToken names an invite and proves that its bearer was invited.
type inviteToken struct {
	org    compute.OrgID
	id     compute.InviteID
	secret [inviteSecret]byte
}

// String returns the text that the invited person gets.
func (t *inviteToken) String() string {
	return "inv_" + base64.RawURLEncoding.EncodeToString(slices.Concat(t.org.UUID[:], t.id.UUID[:], t.secret[:]))
}

// hash returns the hash of the token, which the state keeps.
func (t *inviteToken) hash() compute.Hash { return sha256.Sum256(t.secret[:]) }

// parseInviteToken parses the token in a path.
func parseInviteToken(text string) (*inviteToken, error) {
	encoded, ok := strings.CutPrefix(text, "inv_")
	raw, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	t := new(inviteToken)
	if !ok || err != nil || len(raw) != len(t.org.UUID)+len(t.id.UUID)+inviteSecret {
		return nil, edge.NotFound()
	}
	in := bytes.NewReader(raw)
	for _, part := range [][]byte{t.org.UUID[:], t.id.UUID[:], t.secret[:]} {
		if _, err := in.Read(part); err != nil {
			return nil, edge.NotFound()
		}
	}
	return t, nil
}

// invites serves Org Invites.
type invites struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *invites) Routes() []edge.Route {
	const all = edge.Root + "/orgs/{slug}/invites"
	return []edge.Route{
		{
			Method: http.MethodGet, Path: all, Tag: "Org Invites", Need: edge.NeedOrg, Role: compute.RoleFor(compute.ActInvite),
			Summary: "The invites of an organization, with those that were answered within the last week.",
			Query:   edge.Type[wire.PageQuery](), Reply: edge.Type[[]wire.Invite](), Handle: g.list,
		},
		{
			Method: http.MethodPost, Path: all, Tag: "Org Invites", Need: edge.NeedOrg, Role: compute.RoleFor(compute.ActInvite),
			Once: true,
			Summary: "Invite a person, for a week. The token is shown this once: send it to the person, who accepts " +
				"with an account of that e-mail address. An earlier invite to the address ends.",
			Body: edge.Type[wire.NewInvite](), Reply: edge.Type[wire.MintedInvite](), Handle: g.create,
		},
		{
			Method: http.MethodDelete, Path: all + "/{id}", Tag: "Org Invites", Need: edge.NeedOrg,
			Role:    compute.RoleFor(compute.ActInvite),
			Summary: "Revoke an invite.",
			Reply:   edge.Type[wire.Message](), Handle: g.revoke,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/invites", Tag: "Org Invites", Need: edge.NeedUser,
			Summary: "The invites to the caller's e-mail address that can be answered, with the token that was sent.",
			Query:   edge.Type[wire.PageQuery](), Reply: edge.Type[[]wire.Invite](), Handle: g.mine,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/invites/{token}/accept", Tag: "Org Invites", Need: edge.NeedUser,
			Summary: "Become a member of the organization.",
			Reply:   edge.Type[wire.Invite](), Handle: g.accept,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/invites/{token}/decline", Tag: "Org Invites", Need: edge.NeedUser,
			Summary: "Decline an invite.",
			Reply:   edge.Type[wire.Invite](), Handle: g.decline,
		},
	}
}

// inviteOf returns an invite as it is shown.
func inviteOf(view *fsm.View, i *compute.Invite) wire.Invite {
	out := wire.Invite{
		ID: i.ID, Email: i.Email, Role: i.Role, Status: i.Status.String(), CreatedAt: i.CreatedAt, ExpiresAt: i.ExpiresAt,
	}
	if i.Status == compute.InvitePending && !i.Open(view.Now()) {
		out.Status = "expired"
	}
	if o, ok := view.Org(i.Org); ok {
		out.OrgSlug, out.OrgName = o.Slug, o.Name
	}
	if u, ok := view.User(i.By); ok {
		out.InvitedBy = &u.Email
	}
	return out
}

// list answers the invites of an organization.
func (g *invites) list(r *edge.Request) (any, error) {
	out := []wire.Invite{}
	for _, i := range r.View.Invites(r.Caller.Actor.Org) {
		out = append(out, inviteOf(r.View, i))
	}
	return handler.Paged(r, out, func(i *wire.Invite) string { return handler.ByTime(i.CreatedAt, i.ID) })
}

// create invites a person. The token is in this answer and nowhere else.
func (g *invites) create(r *edge.Request) (any, error) {
	if err := r.View.AllowsOrgs(); err != nil {
		return nil, err
	}
	in := r.Body.(*wire.NewInvite)
	token := &inviteToken{org: r.Caller.Actor.Org, id: compute.InviteID{UUID: g.NewID()}}
	if err := g.Credentials.Random(token.secret[:]); err != nil {
		return nil, err
	}
	invite := compute.Invite{ID: token.id, Org: token.org, Email: in.Email, Hash: token.hash()}
	if err := invite.Role.UnmarshalText([]byte(in.Role)); err != nil {
		return nil, err
	}
	result, err := g.ProposeAndSee(r, command.PutInvite{Op: g.Op(r), Actor: r.Caller.Actor, Invite: invite})
	if err != nil {
		return nil, err
	}
	// A repeat inside the cluster finds the invite that this request made.
	if result.Repeat && result.ID != invite.ID.UUID {
		return nil, handler.ErrSecretGone("invite", result.ID.String())
	}
	made, ok := r.View.Invite(token.org, token.id)
	if !ok {
		return nil, edge.NotFound()
	}
	return wire.MintedInvite{Invite: inviteOf(r.View, made), Token: token.String()}, nil
}

// revoke removes an invite.
func (g *invites) revoke(r *edge.Request) (any, error) {
	id, err := compute.ParseInviteID(r.Params["id"])
	if err != nil {
		return nil, edge.NotFound()
	}
	org := r.Caller.Actor.Org
	if _, ok := r.View.Invite(org, id); !ok && !r.Repeat {
		return nil, edge.NotFound()
	}
	_, err = g.Propose(r, command.RevokeInvite{Op: g.Op(r), Actor: r.Caller.Actor, Org: org, Invite: id})
	if err != nil {
		return nil, err
	}
	return wire.Message{Message: "The invite is revoked."}, nil
}

// mine answers the invites to the caller.
func (g *invites) mine(r *edge.Request) (any, error) {
	out := []wire.Invite{}
	for i := range r.View.InvitesFor(r.Caller.User.Email) {
		out = append(out, inviteOf(r.View, i))
	}
	return handler.Paged(r, out, func(i *wire.Invite) string { return handler.ByTime(i.CreatedAt, i.ID) })
}

// accept makes the caller a member.
func (g *invites) accept(r *edge.Request) (any, error) { return g.answer(r, true) }

// decline ends an invite to the caller.
func (g *invites) decline(r *edge.Request) (any, error) { return g.answer(r, false) }

// answer accepts or declines an invite.
func (g *invites) answer(r *edge.Request, accept bool) (any, error) {
	token, err := parseInviteToken(r.Params["token"])
	if err != nil {
		return nil, err
	}
	known, ok := r.View.Invite(token.org, token.id)
	if !ok || known.Hash != token.hash() {
		return nil, edge.NotFound()
	}
	if known.Email != r.Caller.User.Email {
		return nil, compute.Errorf(compute.CodeForbidden,
			"The invite is for another e-mail address: sign in with the account that has it.").Named("invite_for_another")
	}
	_, err = g.ProposeAndSee(r, command.AnswerInvite{
		Op: g.Op(r), Actor: r.Caller.Actor, Org: token.org, Invite: token.id, Hash: token.hash(), Accept: accept,
	})
	if err != nil {
		return nil, err
	}
	done, ok := r.View.Invite(token.org, token.id)
	if !ok {
		return nil, edge.NotFound()
	}
	return inviteOf(r.View, done), nil
}
