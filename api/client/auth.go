package client

import (
	"context"
	"net/http"

	"berth/api/wire"
	berth "berth/sdk/go"
)

// Login signs in with a password.
func (c *Client) Login(ctx context.Context, email, password string) (wire.Session, error) {
	var out wire.Session
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: "/auth/login", NoKey: true, Out: &out,
		Body: wire.Login{Email: email, Password: password},
	})
	return out, err
}

// Refresh returns a new pair of tokens for a refresh token, which is dead from
// then on. It is sent once: a token that is seen twice ends its whole family.
func (c *Client) Refresh(ctx context.Context, refreshToken string) (wire.Session, error) {
	var out wire.Session
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: "/auth/refresh", NoKey: true, Once: true, Out: &out,
		Body: wire.RefreshBody{RefreshToken: refreshToken},
	})
	return out, err
}

// Logout ends the login of a refresh token.
func (c *Client) Logout(ctx context.Context, refreshToken string) error {
	return c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: "/auth/logout", NoKey: true,
		Body: wire.RefreshBody{RefreshToken: refreshToken},
	})
}

// SignUp makes an account and signs in.
func (c *Client) SignUp(ctx context.Context, in wire.SignUp) (wire.Session, error) {
	body := given(map[string]string{
		"email": in.Email, "password": in.Password, "full_name": in.FullName, "org_name": in.OrgName,
	})
	var out wire.Session
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: "/auth/signup", NoKey: true, Once: true, Out: &out, Body: body,
	})
	return out, err
}

// Device starts a sign-in with the cluster's identity provider.
func (c *Client) Device(ctx context.Context) (wire.DeviceCode, error) {
	var out wire.DeviceCode
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: "/auth/oidc/device", NoKey: true, Out: &out, Body: wire.Nothing{},
	})
	return out, err
}

// DeviceLogin signs in with a device code. Until it is approved the error's code is
// authorization_pending or slow_down.
func (c *Client) DeviceLogin(ctx context.Context, device string) (wire.Session, error) {
	var out wire.Session
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: "/auth/oidc/token", NoKey: true, Once: true, Out: &out,
		Body: map[string]string{"device_code": device},
	})
	return out, err
}
