package client

import (
	"context"
	"net/http"
	"net/url"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// CreateUser makes a user in an organization, which is made too if it does not
// exist. Without a password one is made, which is in this answer only.
func (c *Client) CreateUser(ctx context.Context, user wire.NewUser) (wire.User, error) {
	body := map[string]any{"email": user.Email, "org_slug": user.OrgSlug, "operator": user.Operator}
	for name, value := range map[string]string{
		"password": user.Password, "full_name": user.FullName, "org_name": user.OrgName, "role": user.Role,
	} {
		if value != "" {
			body[name] = value
		}
	}
	var out wire.User
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/admin/users", Body: body, Out: &out})
	return out, err
}

// Users returns the users of the cluster, oldest first: those of the organization
// with a slug, and the one with an address, unless they are empty.
func (c *Client) Users(ctx context.Context, org, email string) ([]wire.User, error) {
	query := url.Values{}
	if org != "" {
		query.Set("org", org)
	}
	if email != "" {
		query.Set("email", email)
	}
	var all []wire.User
	for {
		var page []wire.User
		var header http.Header
		err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/admin/users", Query: query, Out: &page, Header: &header})
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		next := header.Get("X-Next-Cursor")
		if next == "" {
			return all, nil
		}
		query.Set("cursor", next)
	}
}

// DisableUser disables a user or, with disabled false, enables one.
func (c *Client) DisableUser(ctx context.Context, id compute.UserID, disabled bool) (wire.User, error) {
	return c.changeUser(ctx, id, map[string]any{"disabled": disabled})
}

// ResetPassword gives a user a new password. An empty one is made, which is in
// this answer only.
func (c *Client) ResetPassword(ctx context.Context, id compute.UserID, password string) (wire.User, error) {
	if password == "" {
		return c.changeUser(ctx, id, map[string]any{"reset_password": true})
	}
	return c.changeUser(ctx, id, map[string]any{"password": password})
}

// AddMember makes a user a member of the organization with a slug, or changes the
// role there.
func (c *Client) AddMember(
	ctx context.Context, id compute.UserID, slug string, role compute.OrgRole,
) (wire.User, error) {
	return c.changeUser(ctx, id, map[string]any{"org_slug": slug, "role": role.String()})
}

func (c *Client) changeUser(ctx context.Context, id compute.UserID, change map[string]any) (wire.User, error) {
	var out wire.User
	err := c.Do(ctx, berth.Call{Method: http.MethodPatch, Path: "/admin/users/" + id.String(), Body: change, Out: &out})
	return out, err
}

// ChangePassword replaces the caller's password, which ends the caller's other
// sessions.
func (c *Client) ChangePassword(ctx context.Context, old, password string) error {
	return c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: "/user/password", Body: wire.PasswordChange{Old: old, New: password},
	})
}
