package client

import (
	"context"
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
	var out []wire.Member
	err := c.do(ctx, call{method: http.MethodGet, path: membersPath(slug), out: &out})
	return out, err
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
