package client

import (
	"context"
	"net/http"

	"berth/api/wire"
)

// Login signs in with a password.
func (c *Client) Login(ctx context.Context, email, password string) (wire.Session, error) {
	var out wire.Session
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/auth/login", noKey: true, out: &out,
		body: wire.Login{Email: email, Password: password},
	})
	return out, err
}

// Refresh returns a new pair of tokens for a refresh token, which is dead from
// then on. It is sent once: a token that is seen twice ends its whole family.
func (c *Client) Refresh(ctx context.Context, refreshToken string) (wire.Session, error) {
	var out wire.Session
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/auth/refresh", noKey: true, once: true, out: &out,
		body: wire.RefreshBody{RefreshToken: refreshToken},
	})
	return out, err
}

// Logout ends the login of a refresh token.
func (c *Client) Logout(ctx context.Context, refreshToken string) error {
	return c.do(ctx, call{
		method: http.MethodPost, path: "/auth/logout", noKey: true,
		body: wire.RefreshBody{RefreshToken: refreshToken},
	})
}

// SignUp makes an account and signs in.
func (c *Client) SignUp(ctx context.Context, in wire.SignUp) (wire.Session, error) {
	body := given(map[string]string{
		"email": in.Email, "password": in.Password, "full_name": in.FullName, "org_name": in.OrgName,
	})
	var out wire.Session
	err := c.do(ctx, call{method: http.MethodPost, path: "/auth/signup", noKey: true, once: true, out: &out, body: body})
	return out, err
}

// Device starts a sign-in with the cluster's identity provider.
func (c *Client) Device(ctx context.Context) (wire.DeviceCode, error) {
	var out wire.DeviceCode
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/auth/oidc/device", noKey: true, out: &out, body: wire.Nothing{},
	})
	return out, err
}

// DeviceLogin signs in with a device code. Until it is approved the error's code is
// authorization_pending or slow_down.
func (c *Client) DeviceLogin(ctx context.Context, device string) (wire.Session, error) {
	var out wire.Session
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/auth/oidc/token", noKey: true, once: true, out: &out,
		body: map[string]string{"device_code": device},
	})
	return out, err
}
