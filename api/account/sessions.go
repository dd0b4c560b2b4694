package account

import (
	"net/http"
	"strings"
	"time"

	"berth/api/auth"
	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// sessions serves Authentication: sign-in, refresh and sign-out.
type sessions struct {
	*handler.Core
	stranger func(*edge.Request) error // Refuses a request without a good credential.
}

// Routes returns the routes of the group.
func (g *sessions) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodPost, Path: edge.Root + "/auth/login", Tag: "Authentication", Once: true,
			Summary: "Sign in with a password.",
			Body:    edge.Type[wire.Login](), Reply: edge.Type[wire.Session](), Handle: g.login,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/auth/refresh", Tag: "Authentication", Once: true,
			Summary: "Exchange a refresh token for a new pair. Reusing the old one after 30 s revokes the whole login.",
			Body:    edge.Type[wire.RefreshBody](), Reply: edge.Type[wire.Session](), Handle: g.refresh,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/auth/logout", Tag: "Authentication",
			Summary: "Revoke a refresh token and its family.",
			Body:    edge.Type[wire.RefreshBody](), Reply: edge.Type[wire.Message](), Handle: g.logout,
		},
	}
}

// login answers a pair of tokens for a password. An unknown account takes as
// long and gets the same answer as a wrong password.
func (g *sessions) login(r *edge.Request) (any, error) {
	in := r.Body.(*wire.Login)
	email := strings.ToLower(strings.TrimSpace(in.Email))
	if err := g.Credentials.AllowLogin(email, r.IP); err != nil {
		return nil, err
	}
	if err := g.ReadView(r); err != nil {
		return nil, err
	}
	user, _ := r.View.UserByEmail(email)
	good, err := g.Credentials.CheckPassword(r, user, in.Password)
	if err != nil {
		return nil, err
	}
	if !good || !user.Active {
		return nil, compute.Errorf(compute.CodeUnauthenticated, "The email or the password is wrong.").Named("bad_login")
	}
	return g.openSession(r, user, checkedPassword(r, user))
}

// checkedPassword returns the digest of a password that was checked, which may be changed
// before the login or the change is recorded; zero while servers do not compare it.
func checkedPassword(r *edge.Request, user *compute.User) compute.Hash {
	if r.View.AllowsCheckedPasswords() != nil {
		return compute.Hash{}
	}
	return command.PasswordDigest(user)
}

// openSession begins a family of refresh tokens, if the user's password still has a
// digest; zero for one that was not checked.
func (g *sessions) openSession(r *edge.Request, user *compute.User, checked compute.Hash) (any, error) {
	text, hash, err := g.Credentials.NewRefresh()
	if err != nil {
		return nil, err
	}
	r.Caller.User = user
	token := compute.RefreshToken{
		Hash: hash, Family: g.NewUUID(), User: user.ID,
		ExpiresAt: compute.InstantOf(g.Now().Add(g.Config.RefreshTTL)),
	}
	op := g.Op(r)
	result, err := g.ProposeAndSee(r, command.StoreRefresh{Op: op, Token: token, Password: checked})
	if err != nil {
		return nil, err
	}
	if _, stored := r.View.Refresh(hash); result.Repeat && !stored {
		return nil, handler.ErrSecretGone("session", "")
	}
	return g.session(r, user, token.Family, text)
}

// session answers a pair of tokens.
func (g *sessions) session(r *edge.Request, user *compute.User, family compute.UUID, refresh string) (any, error) {
	access, _, err := g.Credentials.Sign(r.View, user, family)
	if err != nil {
		return nil, err
	}
	return wire.Session{
		AccessToken: access, RefreshToken: refresh, TokenType: "bearer",
		ExpiresIn: int(g.Config.AccessTTL / time.Second), UserID: user.ID, Email: user.Email, Temporary: user.Temporary,
	}, nil
}

// refresh exchanges a refresh token for its successor. The successor is derived
// from the token, so that a client that lost the answer gets the same one if it
// repeats soon. A later repeat with its Idempotency-Key is not treated as theft
// but gets no token.
func (g *sessions) refresh(r *edge.Request) (any, error) {
	in := r.Body.(*wire.RefreshBody)
	if err := g.ReadView(r); err != nil {
		return nil, err
	}
	old, err := auth.HashRefreshToken(in.RefreshToken)
	if err != nil {
		return nil, g.stranger(r)
	}
	token, ok := r.View.Refresh(old)
	if !ok {
		return nil, g.stranger(r)
	}
	user, ok := r.View.User(token.User)
	if !ok || !user.Active {
		return nil, g.stranger(r)
	}
	next, hash, err := g.Credentials.NextRefresh(in.RefreshToken)
	if err != nil {
		return nil, err
	}
	r.Caller.User = user
	result, err := g.ProposeAndSee(r, command.RotateRefresh{
		Op: g.Op(r), Old: old, Next: compute.RefreshToken{Hash: hash},
	})
	if err != nil {
		return nil, err
	}
	successor, ok := r.View.Refresh(hash)
	switch {
	case ok && successor.Revoked:
		return nil, g.stranger(r)
	case result.Repeat && (!ok || r.View.Now().Sub(successor.CreatedAt) > fsm.RefreshGrace):
		return nil, handler.ErrSecretGone("session", "")
	}
	return g.session(r, user, token.Family, next)
}

// logout revokes a refresh token with its family. An unknown token counts as
// revoked.
func (g *sessions) logout(r *edge.Request) (any, error) {
	in := r.Body.(*wire.RefreshBody)
	if err := g.ReadView(r); err != nil {
		return nil, err
	}
	hash, err := auth.HashRefreshToken(in.RefreshToken)
	token, known := r.View.Refresh(hash)
	if err == nil && known {
		r.Caller.User, _ = r.View.User(token.User)
		if _, err := g.Propose(r, command.RevokeRefresh{Op: g.Op(r), Token: hash}); err != nil {
			return nil, err
		}
	}
	return wire.Message{Message: "You are signed out."}, nil
}
