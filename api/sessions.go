package api

import (
	"net/http"
	"strings"
	"time"

	"berth/api/auth"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// sessions serves Authentication: sign-in, refresh and sign-out.
type sessions struct {
	*core
	stranger func(*request) error // Refuses a request without a good credential.
}

// routes returns the routes of the group.
func (g *sessions) routes() []route {
	return []route{
		{
			method: http.MethodPost, path: root + "/auth/login", tag: "Authentication", once: true,
			summary: "Sign in with a password.",
			body:    of[wire.Login](), reply: of[wire.Session](), handle: g.login,
		},
		{
			method: http.MethodPost, path: root + "/auth/refresh", tag: "Authentication", once: true,
			summary: "Exchange a refresh token for a new pair. Reusing the old one after 30 s revokes the whole login.",
			body:    of[wire.RefreshBody](), reply: of[wire.Session](), handle: g.refresh,
		},
		{
			method: http.MethodPost, path: root + "/auth/logout", tag: "Authentication",
			summary: "Revoke a refresh token and its family.",
			body:    of[wire.RefreshBody](), reply: of[wire.Message](), handle: g.logout,
		},
	}
}

// login answers a pair of tokens for a password. An unknown account takes as
// long and gets the same answer as a wrong password.
func (g *sessions) login(r *request) (any, error) {
	in := r.body.(*wire.Login)
	email := strings.ToLower(strings.TrimSpace(in.Email))
	if err := g.credentials.allowLogin(email, r.ip); err != nil {
		return nil, err
	}
	if err := g.readView(r); err != nil {
		return nil, err
	}
	user, _ := r.view.UserByEmail(email)
	good, err := g.credentials.checkPassword(r.ctx, user, in.Password)
	if err != nil {
		return nil, err
	}
	if !good || !user.Active {
		return nil, compute.Errorf(compute.CodeUnauthenticated, "The email or the password is wrong.").Named("bad_login")
	}
	return g.openSession(r, user)
}

// openSession begins a family of refresh tokens.
func (g *sessions) openSession(r *request, user *compute.User) (any, error) {
	text, hash, err := g.credentials.newRefresh()
	if err != nil {
		return nil, err
	}
	r.caller.user = user
	token := compute.RefreshToken{
		Hash: hash, Family: g.newUUID(), User: user.ID,
		ExpiresAt: compute.InstantOf(g.now().Add(g.cfg.RefreshTTL)),
	}
	op := g.op(r)
	result, err := g.proposeAndSee(r, fsm.StoreRefresh{Op: op, Token: token})
	if err != nil {
		return nil, err
	}
	if _, stored := r.view.Refresh(hash); result.Repeat && !stored {
		return nil, errSecretGone("session", "")
	}
	return g.session(r, user, token.Family, text)
}

// session answers a pair of tokens.
func (g *sessions) session(r *request, user *compute.User, family compute.UUID, refresh string) (any, error) {
	access, _, err := g.credentials.sign(r.view, user, family)
	if err != nil {
		return nil, err
	}
	return wire.Session{
		AccessToken: access, RefreshToken: refresh, TokenType: "bearer",
		ExpiresIn: int(g.cfg.AccessTTL / time.Second), UserID: user.ID, Email: user.Email,
	}, nil
}

// refresh exchanges a refresh token for its successor. The successor is derived
// from the token, so that a client that lost the answer gets the same one if it
// repeats soon. A later repeat with its Idempotency-Key is not treated as theft
// but gets no token.
func (g *sessions) refresh(r *request) (any, error) {
	in := r.body.(*wire.RefreshBody)
	if err := g.readView(r); err != nil {
		return nil, err
	}
	old, err := auth.HashRefreshToken(in.RefreshToken)
	if err != nil {
		return nil, g.stranger(r)
	}
	token, ok := r.view.Refresh(old)
	if !ok {
		return nil, g.stranger(r)
	}
	user, ok := r.view.User(token.User)
	if !ok || !user.Active {
		return nil, g.stranger(r)
	}
	next, hash, err := g.credentials.nextRefresh(in.RefreshToken)
	if err != nil {
		return nil, err
	}
	r.caller.user = user
	result, err := g.proposeAndSee(r, fsm.RotateRefresh{
		Op: g.op(r), Old: old, Next: compute.RefreshToken{Hash: hash},
	})
	if err != nil {
		return nil, err
	}
	successor, ok := r.view.Refresh(hash)
	switch {
	case ok && successor.Revoked:
		return nil, g.stranger(r)
	case result.Repeat && (!ok || r.view.Now().Sub(successor.CreatedAt) > fsm.RefreshGrace):
		return nil, errSecretGone("session", "")
	}
	return g.session(r, user, token.Family, next)
}

// logout revokes a refresh token with its family. An unknown token counts as
// revoked.
func (g *sessions) logout(r *request) (any, error) {
	in := r.body.(*wire.RefreshBody)
	if err := g.readView(r); err != nil {
		return nil, err
	}
	hash, err := auth.HashRefreshToken(in.RefreshToken)
	token, known := r.view.Refresh(hash)
	if err == nil && known {
		r.caller.user, _ = r.view.User(token.User)
		if _, err := g.propose(r, fsm.RevokeRefresh{Op: g.op(r), Token: hash}); err != nil {
			return nil, err
		}
	}
	return wire.Message{Message: "You are signed out."}, nil
}
