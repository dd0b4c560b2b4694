package api

import (
	"strings"
	"time"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// login answers a pair of tokens for a password. Who is unknown costs as much
// time as who is known, and is told the same.
func (s *Server) login(r *request) (any, error) {
	in := r.body.(*wire.Login)
	email := strings.ToLower(strings.TrimSpace(in.Email))
	if err := s.access.allowLogin(r, email); err != nil {
		return nil, err
	}
	if err := s.readView(r); err != nil {
		return nil, err
	}
	user, known := r.view.UserByEmail(email)
	hash := ""
	if known {
		hash = user.PasswordHash
	}
	good, err := s.access.checkPassword(r.ctx, hash, in.Password)
	if err != nil {
		return nil, err
	}
	if !known || !good || !user.Active {
		s.access.loginFailed(r, email)
		return nil, compute.Errorf(compute.CodeUnauthenticated, "The email or the password is wrong.").Named("bad_login")
	}
	s.access.loginSucceeded(r, email)
	return s.openSession(r, user)
}

// openSession begins a family of refresh tokens.
func (s *Server) openSession(r *request, user *compute.User) (any, error) {
	text, hash, err := s.access.newRefresh()
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
	expires := s.now().Add(s.cfg.AccessTTL)
	access, err := s.access.signToken(r.view, sessionClaims{
		user: user.ID, family: family, version: user.TokenVersion, expires: expires,
	}, s.now())
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
// when it asks again soon.
func (s *Server) refresh(r *request) (any, error) {
	in := r.body.(*wire.RefreshBody)
	if err := s.readView(r); err != nil {
		return nil, err
	}
	old := s.access.hashRefresh(in.RefreshToken)
	token, ok := r.view.Refresh(old)
	if !ok {
		return nil, s.stranger(r)
	}
	user, ok := r.view.User(token.User)
	if !ok || !user.Active {
		return nil, s.stranger(r)
	}
	next, hash := s.access.nextRefresh(in.RefreshToken)
	_, err := s.proposeAndSee(r, fsm.RotateRefresh{Old: old, Next: compute.RefreshToken{Hash: hash}})
	if err != nil {
		return nil, err
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
	hash := s.access.hashRefresh(in.RefreshToken)
	if _, known := r.view.Refresh(hash); known {
		if _, err := s.propose(r, fsm.RevokeRefresh{Token: hash}); err != nil {
			return nil, err
		}
	}
	return wire.Message{Message: "You are signed out."}, nil
}
