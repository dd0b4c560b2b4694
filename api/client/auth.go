package client

import (
	"context"
	"net/http"
)

// Session is what signing in gives.
type Session struct {
	AccessToken  string `json:"access_token"`
	RefreshToken string `json:"refresh_token"`
	TokenType    string `json:"token_type"`
	ExpiresIn    int    `json:"expires_in"` // Seconds.
	UserID       string `json:"user_id"`
	Email        string `json:"email"`
}

// Login signs in with a password.
func (c *Client) Login(ctx context.Context, email, password string) (Session, error) {
	var out Session
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/auth/login", noKey: true, out: &out,
		body: map[string]string{"email": email, "password": password},
	})
	return out, err
}

// Refresh returns a new pair of tokens for a refresh token, which is dead from
// then on. It is sent once: a token that is seen twice ends its whole family.
func (c *Client) Refresh(ctx context.Context, refreshToken string) (Session, error) {
	var out Session
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/auth/refresh", noKey: true, once: true, out: &out,
		body: map[string]string{"refresh_token": refreshToken},
	})
	return out, err
}
