package api

import (
	"context"
	"time"

	"berth/compute"
	"berth/fsm"
)

type access struct{ cfg Config }

func newAccess(cfg Config) *access { return &access{cfg: cfg} }

func (a *access) streamToken(id compute.ExecutionID) string                  { return "" }
func (a *access) checkStreamToken(id compute.ExecutionID, token string) bool { return false }
func (a *access) mintKey() (mintedKey, error)                                { return mintedKey{}, nil }
func (a *access) parseKey(text string) (lookup string, hash compute.Hash, ok bool) {
	return "", compute.Hash{}, false
}
func (a *access) verifyToken(view *fsm.View, text string, now time.Time) (sessionClaims, bool) {
	return sessionClaims{}, false
}
func (a *access) signToken(view *fsm.View, claims sessionClaims, now time.Time) (string, error) {
	return "", nil
}
func (a *access) hashPassword(ctx context.Context, password string) (string, error) { return "", nil }
func (a *access) checkPassword(ctx context.Context, hash, password string) (bool, error) {
	return false, nil
}
func (a *access) newRefresh() (string, compute.Hash, error)      { return "", compute.Hash{}, nil }
func (a *access) nextRefresh(text string) (string, compute.Hash) { return "", compute.Hash{} }
func (a *access) hashRefresh(text string) compute.Hash           { return compute.Hash{} }
func (a *access) allowLogin(r *request, email string) error      { return nil }
func (a *access) loginFailed(r *request, email string)           {}
func (a *access) loginSucceeded(r *request, email string)        {}
