package client

import (
	"context"
	"maps"
	"net/http"
	"net/url"

	"berth/api/wire"
	"berth/compute"
)

// Orgs returns the organizations of the caller.
func (c *Client) Orgs(ctx context.Context) ([]wire.Org, error) {
	var out []wire.Org
	err := c.do(ctx, call{method: http.MethodGet, path: "/orgs", out: &out})
	return out, err
}

// Members returns the members of the organization with a slug.
func (c *Client) Members(ctx context.Context, slug string) ([]wire.Member, error) {
	return pages[wire.Member](ctx, c, membersPath(slug))
}

// SetRole changes the role of a member.
func (c *Client) SetRole(
	ctx context.Context, slug string, id compute.UserID, role compute.OrgRole,
) (wire.Member, error) {
	var out wire.Member
	err := c.do(ctx, call{
		method: http.MethodPatch, path: membersPath(slug) + "/" + id.String(), out: &out,
		body: wire.MemberChange{Role: role.String()},
	})
	return out, err
}

// RemoveMember ends a membership.
func (c *Client) RemoveMember(ctx context.Context, slug string, id compute.UserID) error {
	return c.do(ctx, call{method: http.MethodDelete, path: membersPath(slug) + "/" + id.String()})
}

func membersPath(slug string) string { return "/orgs/" + url.PathEscape(slug) + "/members" }

// CreateOrg makes an organization whose owner is the caller.
func (c *Client) CreateOrg(ctx context.Context, o wire.NewOrg) (wire.Org, error) {
	body := given(map[string]string{"name": o.Name, "slug": o.Slug})
	var out wire.Org
	err := c.do(ctx, call{method: http.MethodPost, path: "/orgs", body: body, out: &out})
	return out, err
}

// ChangeOrg changes an organization. What is empty stays.
func (c *Client) ChangeOrg(ctx context.Context, slug string, change wire.OrgChange) (wire.Org, error) {
	body := given(map[string]string{"name": change.Name, "slug": change.Slug, "billing_email": change.BillingEmail})
	var out wire.Org
	err := c.do(ctx, call{method: http.MethodPatch, path: orgPath(slug), body: body, out: &out})
	return out, err
}

// DeleteOrg deletes an organization that has no live executions.
func (c *Client) DeleteOrg(ctx context.Context, slug string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: orgPath(slug)})
}

// SetDefaultOrg makes an organization the caller's default one.
func (c *Client) SetDefaultOrg(ctx context.Context, slug string) (wire.Org, error) {
	var out wire.Org
	err := c.do(ctx, call{method: http.MethodPost, path: orgPath(slug) + "/default", out: &out})
	return out, err
}

// Invite invites a person. The answer has the token for the person.
func (c *Client) Invite(ctx context.Context, slug, email string, role compute.OrgRole) (wire.MintedInvite, error) {
	var out wire.MintedInvite
	err := c.do(ctx, call{
		method: http.MethodPost, path: orgPath(slug) + "/invites", out: &out, noKey: true,
		body: wire.NewInvite{Email: email, Role: role.String()},
	})
	return out, err
}

// Invites returns the invites of an organization.
func (c *Client) Invites(ctx context.Context, slug string) ([]wire.Invite, error) {
	return pages[wire.Invite](ctx, c, orgPath(slug)+"/invites")
}

// RevokeInvite revokes an invite.
func (c *Client) RevokeInvite(ctx context.Context, slug string, id compute.InviteID) error {
	return c.do(ctx, call{method: http.MethodDelete, path: orgPath(slug) + "/invites/" + id.String()})
}

// MyInvites returns the invites that the caller can answer.
func (c *Client) MyInvites(ctx context.Context) ([]wire.Invite, error) {
	var out []wire.Invite
	err := c.do(ctx, call{method: http.MethodGet, path: "/invites", out: &out})
	return out, err
}

// AnswerInvite accepts or declines the invite with a token.
func (c *Client) AnswerInvite(ctx context.Context, token string, accept bool) (wire.Invite, error) {
	act := "decline"
	if accept {
		act = "accept"
	}
	var out wire.Invite
	err := c.do(ctx, call{method: http.MethodPost, path: "/invites/" + url.PathEscape(token) + "/" + act, out: &out})
	return out, err
}

// given returns the fields that are not empty.
func given(fields map[string]string) map[string]string {
	maps.DeleteFunc(fields, func(_, value string) bool { return value == "" })
	return fields
}

func orgPath(slug string) string { return "/orgs/" + url.PathEscape(slug) }

// CallbackSecrets returns which secrets sign the callbacks of an organization.
func (c *Client) CallbackSecrets(ctx context.Context, slug string) ([]wire.CallbackSecret, error) {
	var out []wire.CallbackSecret
	err := c.do(ctx, call{method: http.MethodGet, path: orgPath(slug) + "/callback-secret", out: &out})
	return out, err
}

// SetCallbackSecret has the callbacks of an organization signed by a new secret, and
// returns that.
func (c *Client) SetCallbackSecret(ctx context.Context, slug string) (wire.MintedCallbackSecret, error) {
	var out wire.MintedCallbackSecret
	err := c.do(ctx, call{method: http.MethodPost, path: orgPath(slug) + "/callback-secret", out: &out})
	return out, err
}

// RemoveCallbackSecret ends the signing of the callbacks of an organization.
func (c *Client) RemoveCallbackSecret(ctx context.Context, slug string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: orgPath(slug) + "/callback-secret"})
}
