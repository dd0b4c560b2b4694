package edge

import (
	"crypto/ed25519"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"time"

	"berth/api/auth"
	"berth/compute"
	"berth/fsm"
)

// Limits of sign-ins, as multiples of those for an account from one network.
const (
	addressFactor  = 4  // One address, for all accounts behind it.
	everyoneFactor = 20 // One account, from all networks.
)

// Credentials makes and verifies passwords, keys and tokens with the keys of
// this cluster.
type Credentials struct {
	cfg       Config
	passwords *auth.Passwords
	logins    auth.Logins

	mu sync.Mutex

	signingID string // Id of the key in signing; "" before the first.
	signing   ed25519.PrivateKey
}

func newCredentials(cfg Config) (*Credentials, error) {
	passwords, err := auth.NewPasswords(cfg.PasswordCost, cfg.Rand)
	if err != nil {
		return nil, err
	}
	l := cfg.Limits
	return &Credentials{
		cfg: cfg, passwords: passwords,
		logins: auth.Logins{
			Accounts:  auth.NewThrottle(l.LoginRate, l.LoginBurst, cfg.Stopwatch),
			Everyone:  auth.NewThrottle(everyoneFactor*l.LoginRate, everyoneFactor*l.LoginBurst, cfg.Stopwatch),
			Addresses: auth.NewThrottle(addressFactor*l.LoginRate, addressFactor*l.LoginBurst, cfg.Stopwatch),
		},
	}, nil
}

// AllowLogin refuses a sign-in that comes too soon.
func (c *Credentials) AllowLogin(email, ip string) error {
	via, from := origin(ip)
	if wait, ok := c.logins.Allow(email, via, from); !ok {
		return compute.Errorf(compute.CodeRateLimited, "Too many sign-ins.").Retry(wait)
	}
	return nil
}

// origin returns the address in Request.IP and the worker that reports it behind
// its own name, "" for none.
func origin(ip string) (via string, from netip.Addr) {
	if i := strings.LastIndexByte(ip, ' '); i >= 0 {
		via, ip = ip[:i], ip[i+1:]
	}
	from, err := netip.ParseAddr(ip)
	if err != nil {
		from = netip.IPv4Unspecified()
	}
	return via, from
}

// customer names who makes a request without a good credential.
func (r *Request) customer() string { return auth.Customer(origin(r.IP)) }

// Random fills b with random bytes.
func (c *Credentials) Random(b []byte) error {
	if _, err := io.ReadFull(c.cfg.Rand, b); err != nil {
		return fmt.Errorf("make token: %w", err)
	}
	return nil
}

// NewAPIKey returns a new API key.
func (c *Credentials) NewAPIKey() (auth.APIKey, error) { return auth.NewAPIKey(c.cfg.Rand) }

// StreamToken returns the token that opens the output of an execution.
func (c *Credentials) StreamToken(id compute.ExecutionID) string {
	return auth.StreamToken(c.cfg.StreamKey, id)
}

// opensStream reports whether token opens the output of an execution.
func (c *Credentials) opensStream(id compute.ExecutionID, token string) bool {
	return auth.CheckStreamToken(c.cfg.StreamKey, id, token)
}

// accessConfig returns the issuer and lifetimes of the cluster's access tokens.
func (c *Credentials) accessConfig(view *fsm.View) auth.AccessConfig {
	id := view.ClusterID().String()
	return auth.AccessConfig{
		Issuer: "berth:" + id, Audience: "berth-api:" + id, TTL: c.cfg.AccessTTL, Now: c.cfg.Now,
	}
}

// verify returns the claims of an access token, if a key in view signed it.
func (c *Credentials) verify(view *fsm.View, text string) (auth.Access, error) {
	return auth.NewVerifier(c.accessConfig(view), func(id string) (ed25519.PublicKey, bool) {
		for _, key := range view.SigningKeys() {
			if key.ID == id {
				return key.Public, true
			}
		}
		return nil, false
	}).Verify(text)
}

// Sign returns an access token for a user's session.
func (c *Credentials) Sign(view *fsm.View, user *compute.User, session compute.UUID) (string, time.Time, error) {
	keys := view.SigningKeys()
	if len(keys) == 0 {
		return "", time.Time{}, compute.Errorf(compute.CodeUnavailable, "The cluster has no signing key yet.")
	}
	private, err := c.privateKey(keys[0])
	if err != nil {
		return "", time.Time{}, err
	}
	signer := auth.NewSigner(c.accessConfig(view), keys[0].ID, private, c.cfg.Rand)
	return signer.Sign(user.ID, session, user.TokenVersion)
}

// privateKey returns the private half of key, unsealed once.
func (c *Credentials) privateKey(key *compute.SigningKey) (ed25519.PrivateKey, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.signingID == key.ID {
		return c.signing, nil
	}
	private, err := c.cfg.Unseal(*key)
	if err != nil {
		return nil, fmt.Errorf("unseal signing key: %w", err)
	}
	c.signingID, c.signing = key.ID, private
	return private, nil
}

// NewRefresh returns a new refresh token and its hash.
func (c *Credentials) NewRefresh() (string, compute.Hash, error) {
	text, err := auth.NewRefreshToken(c.cfg.Rand)
	if err != nil {
		return "", compute.Hash{}, err
	}
	hash, err := auth.HashRefreshToken(text)
	return text, hash, err
}

// NextRefresh returns the refresh token that follows text, and its hash.
func (c *Credentials) NextRefresh(text string) (string, compute.Hash, error) {
	next, err := auth.NextRefreshToken(c.cfg.RefreshKey, text)
	if err != nil {
		return "", compute.Hash{}, err
	}
	hash, err := auth.HashRefreshToken(next)
	return next, hash, err
}

// HashPassword returns the stored form of a password. The hash is computed when
// it is the turn of the client's network.
func (c *Credentials) HashPassword(r *Request, password string) (string, error) {
	ctx, stop := r.untilHangUp()
	defer stop()
	return c.passwords.Hash(ctx, auth.Network(origin(r.IP)), password)
}

// NewPassword returns a password for a user who is to change it.
func (c *Credentials) NewPassword() (string, error) { return auth.NewPassword(c.cfg.Rand) }

// CheckPassword reports whether password is user's. For a nil user it takes as
// long, so that timing reveals no accounts. It waits as HashPassword does.
func (c *Credentials) CheckPassword(r *Request, user *compute.User, password string) (bool, error) {
	stored := ""
	if user != nil {
		stored = user.PasswordHash
	}
	ctx, stop := r.untilHangUp()
	defer stop()
	ok, _, err := c.passwords.Verify(ctx, auth.Network(origin(r.IP)), password, stored)
	return ok, err
}
