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
