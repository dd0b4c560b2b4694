package gateway

import (
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"

	"berth/fsm"
)

// accounts gives versitygw the keys that requests are signed with.
type accounts struct {
	keys Keys
	view func() *fsm.View
}

// DeriveSigningKey returns the key of a request's signature. The session token is
// needed.
func (a accounts) DeriveSigningKey(access, token, date, region, name string) ([]byte, auth.Account, error) {
	g, ok := a.keys.open(access, token)
	if !ok {
		return nil, auth.Account{}, auth.ErrInvalidSessionToken
	}
	if _, ok := g.actor(a.view(), a.keys.Now(), false); !ok {
		return nil, auth.Account{}, auth.ErrNoSuchUser
	}
	// Versitygw derives the key of an account whose secret is known. The backend, which
	// knows the bucket, decides what the account may do.
	known := auth.Account{Access: access, Secret: a.keys.secretOf(access)}
	derived, _, err := auth.ResolveDerivedKey(service{}, known, access, "", date, region, name)
	return derived, auth.Account{Access: access, Role: auth.RoleAdmin, SessionToken: token, IsSession: true}, err
}

// GetUserAccount knows nobody: without a session token there is no account.
func (accounts) GetUserAccount(string) (auth.Account, error) {
	return auth.Account{}, auth.ErrNoSuchUser
}

// unsupported are the methods by which others manage accounts.
type unsupported struct{}

var errUnsupported = s3err.GetAPIError(s3err.ErrAdminMethodNotSupported)

func (unsupported) CreateAccount(auth.Account) error                  { return errUnsupported }
func (unsupported) ResolveAccounts(keys []string) ([]string, error)   { return keys, nil }
func (unsupported) UpdateUserAccount(string, auth.MutableProps) error { return errUnsupported }
func (unsupported) DeleteUserAccount(string) error                    { return errUnsupported }
func (unsupported) ListUserAccounts() ([]auth.Account, error)         { return nil, errUnsupported }
func (unsupported) Shutdown() error                                   { return nil }

// service is accounts as versitygw wants it.
type service struct {
	accounts
	unsupported
}
