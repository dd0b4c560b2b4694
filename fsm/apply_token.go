package fsm

import (
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// RefreshGrace is how long a client whose answer was lost may repeat the
// rotation of its refresh token.
const RefreshGrace = 30 * time.Second

// RefreshIdle is how long a login lasts without a refresh.
const RefreshIdle = 7 * 24 * time.Hour

// refreshSweep is how many refresh tokens one Tick forgets at most.
const refreshSweep = 1_000

func (s *identity) storeRefresh(c command.StoreRefresh) command.Result {
	u, ok := s.view.users.Get(c.Token.User)
	_, known := s.view.refresh.Get(c.Token.Hash)
	switch {
	case !ok || !u.Active:
		return command.Result{Refusal: unauthenticated("user_inactive", "the user is not active")}
	case !stillHas(u, c.Password):
		return command.Result{Refusal: unauthenticated("bad_login", "the password was changed meanwhile")}
	case known:
		return refuse(compute.CodeConflict, "token_exists", "the refresh token exists")
	case c.Token.ExpiresAt <= s.view.meta.Now:
		return refuse(compute.CodeInvalid, "token_expired", "the refresh token has expired already")
	}
	t := c.Token
	t.Spent, t.Revoked, t.CreatedAt = false, false, s.view.meta.Now
	s.view.putRefresh(&refreshToken{Token: t})
	return command.Result{ID: t.User.UUID}
}

// rotateRefresh spends a refresh token for its successor. A token that was
// spent before has been stolen, from here or from the client, so its whole
// family ends; unless it is the same request again, within the grace.
func (s *identity) rotateRefresh(c command.RotateRefresh) command.Result {
	known, ok := s.view.refresh.Get(c.Old)
	if !ok || known.Token.ExpiresAt <= s.view.meta.Now {
		return command.Result{Refusal: unauthenticated("token_expired", "the refresh token is not valid any more")}
	}
	u, ok := s.view.users.Get(known.Token.User)
	switch {
	case known.Token.Revoked:
		return command.Result{Refusal: unauthenticated("token_revoked", "the refresh token was revoked")}
	case !ok || !u.Active:
		return command.Result{Refusal: unauthenticated("user_inactive", "the user is not active")}
	case known.Token.Spent && known.Next == c.Next.Hash &&
		s.view.meta.Now.Sub(known.SpentAt) <= RefreshGrace:
		return command.Result{ID: u.ID.UUID, Repeat: true}
	case known.Token.Spent:
		s.revokeFamily(known.Token.Family)
		return command.Result{Refusal: unauthenticated("token_reused",
			"the refresh token was used before: all tokens of this login are revoked")}
	}
	if s.view.Format() >= format.Rotation && s.view.meta.Now.Sub(known.Token.CreatedAt) > RefreshIdle {
		return command.Result{Refusal: unauthenticated("token_expired", "the login was not used for too long: sign in again")}
	}
	if _, taken := s.view.refresh.Get(c.Next.Hash); taken {
		return refuse(compute.CodeConflict, "token_exists", "the refresh token exists")
	}
	spent := *known
	spent.Token.Spent, spent.Next, spent.SpentAt = true, c.Next.Hash, s.view.meta.Now
	s.view.putRefresh(&spent)
	s.view.putRefresh(&refreshToken{Token: compute.RefreshToken{
		Hash: c.Next.Hash, Family: known.Token.Family, User: known.Token.User,
		CreatedAt: s.view.meta.Now, ExpiresAt: known.Token.ExpiresAt,
	}})
	return command.Result{ID: u.ID.UUID}
}

// revokeRefresh ends a login. It succeeds also when there is none.
func (s *identity) revokeRefresh(c command.RevokeRefresh) command.Result {
	if known, ok := s.view.refresh.Get(c.Token); ok {
		s.revokeFamily(known.Token.Family)
	}
	return command.Result{}
}

func (s *identity) revokeFamily(id compute.UUID) {
	var members []compute.Hash
	for k := range s.view.families.Keys(family{id: id}) {
		if k.id != id {
			break
		}
		members = append(members, k.token)
	}
	for _, h := range members {
		t, _ := s.view.refresh.Get(h)
		revoked := *t
		revoked.Token.Revoked = true
		s.view.putRefresh(&revoked)
	}
}

// expireRefresh forgets refresh tokens that nobody can use any more. Spent
// ones stay until then, so that their reuse is noticed.
func (s *identity) expireRefresh() {
	for _, m := range s.view.expiring.FirstKeys(refreshSweep) {
		if m.at > s.view.meta.Now {
			return
		}
		s.view.dropRefresh(m.id)
	}
}
