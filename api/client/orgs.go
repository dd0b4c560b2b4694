package client

import (
	"context"
	"maps"
	"net/http"
	"net/url"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// Orgs returns the organizations of the caller.
func (c *Client) Orgs(ctx context.Context) ([]wire.Org, error) {
	return pages[wire.Org](ctx, c, "/orgs")
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
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPatch, Path: membersPath(slug) + "/" + id.String(), Out: &out,
		Body: wire.MemberChange{Role: role.String()},
	})
	return out, err
}

// RemoveMember ends a membership.
func (c *Client) RemoveMember(ctx context.Context, slug string, id compute.UserID) error {
	return c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: membersPath(slug) + "/" + id.String()})
}

func membersPath(slug string) string { return "/orgs/" + url.PathEscape(slug) + "/members" }

// CreateOrg makes an organization whose owner is the caller.
func (c *Client) CreateOrg(ctx context.Context, o wire.NewOrg) (wire.Org, error) {
	body := given(map[string]string{"name": o.Name, "slug": o.Slug})
	var out wire.Org
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/orgs", Body: body, Out: &out})
	return out, err
}

// ChangeOrg changes an organization. Empty fields keep their value.
func (c *Client) ChangeOrg(ctx context.Context, slug string, change wire.OrgChange) (wire.Org, error) {
	body := given(map[string]string{"name": change.Name, "slug": change.Slug, "billing_email": change.BillingEmail})
	var out wire.Org
	err := c.Do(ctx, berth.Call{Method: http.MethodPatch, Path: orgPath(slug), Body: body, Out: &out})
	return out, err
}

// DeleteOrg deletes an organization that has no live executions.
func (c *Client) DeleteOrg(ctx context.Context, slug string) error {
	return c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: orgPath(slug)})
}

// SetDefaultOrg makes an organization the caller's default one.
func (c *Client) SetDefaultOrg(ctx context.Context, slug string) (wire.Org, error) {
	var out wire.Org
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: orgPath(slug) + "/default", Out: &out})
	return out, err
}

// Invite invites a person. The answer has the token for the person.
func (c *Client) Invite(ctx context.Context, slug, email string, role compute.OrgRole) (wire.MintedInvite, error) {
	var out wire.MintedInvite
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: orgPath(slug) + "/invites", Out: &out, NoKey: true,
		Body: wire.NewInvite{Email: email, Role: role.String()},
	})
	return out, err
}

// Invites returns the invites of an organization.
func (c *Client) Invites(ctx context.Context, slug string) ([]wire.Invite, error) {
	return pages[wire.Invite](ctx, c, orgPath(slug)+"/invites")
}

// RevokeInvite revokes an invite.
func (c *Client) RevokeInvite(ctx context.Context, slug string, id compute.InviteID) error {
	return c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: orgPath(slug) + "/invites/" + id.String()})
}

// MyInvites returns the invites that the caller can answer.
func (c *Client) MyInvites(ctx context.Context) ([]wire.Invite, error) {
	return pages[wire.Invite](ctx, c, "/invites")
}

// AnswerInvite accepts or declines the invite with a token.
func (c *Client) AnswerInvite(ctx context.Context, token string, accept bool) (wire.Invite, error) {
	act := "decline"
	if accept {
		act = "accept"
	}
	var out wire.Invite
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/invites/" + url.PathEscape(token) + "/" + act, Out: &out})
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
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: orgPath(slug) + "/callback-secret", Out: &out})
	return out, err
}

// SetCallbackSecret has the callbacks of an organization signed by a new secret, and
// returns that.
func (c *Client) SetCallbackSecret(ctx context.Context, slug string) (wire.MintedCallbackSecret, error) {
	var out wire.MintedCallbackSecret
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: orgPath(slug) + "/callback-secret", Out: &out})
	return out, err
}

// RemoveCallbackSecret ends the signing of the callbacks of an organization.
func (c *Client) RemoveCallbackSecret(ctx context.Context, slug string) error {
	return c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: orgPath(slug) + "/callback-secret"})
}
