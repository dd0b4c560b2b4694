package api

import (
	"strings"
	"time"

	"berth/api/auth"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// login answers a pair of tokens for a password. Who is unknown costs as much
// time as who is known, and is told the same.
func (s *Server) login(r *request) (any, error) {
	in := r.body.(*wire.Login)
	email := strings.ToLower(strings.TrimSpace(in.Email))
	if err := s.credentials.allowLogin(email, r.ip); err != nil {
		return nil, err
	}
	if err := s.readView(r); err != nil {
		return nil, err
	}
	user, _ := r.view.UserByEmail(email)
	good, err := s.credentials.checkPassword(r.ctx, user, in.Password)
	if err != nil {
		return nil, err
	}
	if !good || !user.Active {
		return nil, compute.Errorf(compute.CodeUnauthenticated, "The email or the password is wrong.").Named("bad_login")
	}
	return s.openSession(r, user)
}

// openSession begins a family of refresh tokens.
func (s *Server) openSession(r *request, user *compute.User) (any, error) {
	text, hash, err := s.credentials.newRefresh()
	if err != nil {
		return nil, err
	}
	r.caller.user = user
	token := compute.RefreshToken{
		Hash: hash, Family: s.newUUID(), User: user.ID,
		ExpiresAt: compute.InstantOf(s.now().Add(s.cfg.RefreshTTL)),
	}
	op := s.op(r)
	result, err := s.proposeAndSee(r, fsm.StoreRefresh{Op: op, Token: token})
	if err != nil {
		return nil, err
	}
	if _, stored := r.view.Refresh(hash); result.Repeat && !stored {
		return nil, errSecretGone("session", "")
	}
	return s.session(r, user, token.Family, text)
}

// session answers a pair of tokens.
func (s *Server) session(r *request, user *compute.User, family compute.UUID, refresh string) (any, error) {
	access, _, err := s.credentials.sign(r.view, user, family)
	if err != nil {
		return nil, err
	}
	return wire.Session{
		AccessToken: access, RefreshToken: refresh, TokenType: "bearer",
		ExpiresIn: int(s.cfg.AccessTTL / time.Second), UserID: user.ID, Email: user.Email,
	}, nil
}

// refresh changes a refresh token for its successor. The successor follows
// from the token, so that a client which lost the answer gets the same one
// when it asks again soon. Later than that a repeat with its Idempotency-Key
// is no theft, but gets no token, either.
func (s *Server) refresh(r *request) (any, error) {
	in := r.body.(*wire.RefreshBody)
	if err := s.readView(r); err != nil {
		return nil, err
	}
	old, err := auth.HashRefreshToken(in.RefreshToken)
	if err != nil {
		return nil, s.stranger(r)
	}
	token, ok := r.view.Refresh(old)
	if !ok {
		return nil, s.stranger(r)
	}
	user, ok := r.view.User(token.User)
	if !ok || !user.Active {
		return nil, s.stranger(r)
	}
	next, hash, err := s.credentials.nextRefresh(in.RefreshToken)
	if err != nil {
		return nil, err
	}
	r.caller.user = user
	result, err := s.proposeAndSee(r, fsm.RotateRefresh{
		Op: s.op(r), Old: old, Next: compute.RefreshToken{Hash: hash},
	})
	if err != nil {
		return nil, err
	}
	successor, ok := r.view.Refresh(hash)
	switch {
	case ok && successor.Revoked:
		return nil, s.stranger(r)
	case result.Repeat && (!ok || r.view.Now().Sub(successor.CreatedAt) > fsm.RefreshGrace):
		return nil, errSecretGone("session", "")
	}
	return s.session(r, user, token.Family, next)
}

// logout revokes a refresh token with its family. One that is not known is as
// good as revoked.
func (s *Server) logout(r *request) (any, error) {
	in := r.body.(*wire.RefreshBody)
	if err := s.readView(r); err != nil {
		return nil, err
	}
	hash, err := auth.HashRefreshToken(in.RefreshToken)
	token, known := r.view.Refresh(hash)
	if err == nil && known {
		r.caller.user, _ = r.view.User(token.User)
		if _, err := s.propose(r, fsm.RevokeRefresh{Op: s.op(r), Token: hash}); err != nil {
			return nil, err
		}
	}
	return wire.Message{Message: "You are signed out."}, nil
}
