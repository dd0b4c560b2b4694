package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/argon2"

	"berth/compute"
)

const (
	// MinPassword is the shortest password in characters.
	MinPassword = 10
	// MaxPassword is the longest password in bytes.
	MaxPassword = 256

	saltBytes = 16
	hashBytes = 32

	hashesAtOnce = 2  // Each holds its memory: 64 MiB by default.
	maxWaiting   = 64 // Callers that wait for their turn; more are sent away.
	busyRetry    = 5 * time.Second

	minMemoryKiB = 19 << 10 // OWASP's floor, with two passes.
	minPasses    = 2
	maxMemoryKiB = 1 << 20
	maxPasses    = 16
	maxThreads   = 16
)

// PasswordCost is what one argon2id hash costs.
type PasswordCost struct {
	MemoryKiB uint32
	Passes    uint32
	Threads   uint8
}

// DefaultPasswordCost returns the cost of new hashes: 64 MiB, three passes.
func DefaultPasswordCost() PasswordCost {
	return PasswordCost{MemoryKiB: 64 << 10, Passes: 3, Threads: 1}
}

// valid reports whether c is between the floor and what a node can bear.
func (c PasswordCost) valid() bool {
	return c.MemoryKiB >= minMemoryKiB && c.MemoryKiB <= maxMemoryKiB &&
		c.Passes >= minPasses && c.Passes <= maxPasses && c.Threads >= 1 && c.Threads <= maxThreads
}

// Passwords hashes and verifies passwords, few at a time. All methods may be
// called at the same time.
type Passwords struct {
	cost    PasswordCost
	random  io.Reader
	dummy   string // Nobody's hash.
	slots   chan struct{}
	waiting atomic.Int64
}

// NewPasswords returns Passwords whose new hashes have the cost.
func NewPasswords(cost PasswordCost, random io.Reader) (*Passwords, error) {
	if !cost.valid() {
		return nil, compute.Errorf(compute.CodeInvalid, "the password cost %+v is out of bounds", cost)
	}
	fake := make([]byte, saltBytes+hashBytes)
	if _, err := rand.Read(fake); err != nil {
		return nil, fmt.Errorf("make passwords: %w", err)
	}
	return &Passwords{
		cost:   cost,
		random: random,
		dummy:  encodePHC(phc{cost, fake[:saltBytes], fake[saltBytes:]}),
		slots:  make(chan struct{}, hashesAtOnce),
	}, nil
}

// Hash returns the argon2id hash of a new password in PHC form. The code is
// invalid for one that is too short or too long, and rate_limited when too
// many others wait.
func (p *Passwords) Hash(ctx context.Context, password string) (string, error) {
	if n := len([]rune(password)); n < MinPassword || len(password) > MaxPassword {
		return "", compute.Errorf(compute.CodeInvalid,
			"A password must have at least %d characters and at most %d bytes.", MinPassword, MaxPassword)
	}
	salt := make([]byte, saltBytes)
	if _, err := io.ReadFull(p.random, salt); err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	hash, err := p.derive(ctx, password, phc{cost: p.cost, salt: salt})
	if err != nil {
		return "", err
	}
	return encodePHC(phc{p.cost, salt, hash}), nil
}

// Verify reports whether password is the one that stored is the hash of, and
// whether it should be hashed again because the cost has changed. With an
// empty stored, for a user who does not exist, it works as long and says no.
func (p *Passwords) Verify(ctx context.Context, password, stored string) (ok, rehash bool, err error) {
	known := stored != "" && len(password) <= MaxPassword
	if !known {
		stored, password = p.dummy, ""
	}
	want, err := decodePHC(stored)
	if err != nil {
		return false, false, fmt.Errorf("verify password: %w", err)
	}
	got, err := p.derive(ctx, password, want)
	if err != nil {
		return false, false, err
	}
	ok = subtle.ConstantTimeCompare(got, want.hash) == 1 && known
	return ok, ok && want.cost != p.cost, nil
}

// derive computes the hash, after it waited for its turn.
func (p *Passwords) derive(ctx context.Context, password string, of phc) ([]byte, error) {
	if err := p.acquire(ctx); err != nil {
		return nil, err
	}
	defer func() { <-p.slots }()
	c := of.cost
	return argon2.IDKey([]byte(password), of.salt, c.Passes, c.MemoryKiB, c.Threads, hashBytes), nil
}

// acquire waits for its turn, unless too many wait already.
func (p *Passwords) acquire(ctx context.Context) error {
	defer p.waiting.Add(-1)
	if p.waiting.Add(1) > maxWaiting {
		return compute.Errorf(compute.CodeRateLimited, "Too many sign-ins at the moment.").Retry(busyRetry)
	}
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait to hash password: %w", ctx.Err())
	}
}

// phc is a hash with everything that it takes to compute it again.
type phc struct {
	cost PasswordCost
	salt []byte
	hash []byte
}

// encodePHC returns h as $argon2id$v=19$m=65536,t=3,p=1$salt$hash.
func encodePHC(h phc) string {
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version,
		h.cost.MemoryKiB, h.cost.Passes, h.cost.Threads, b64(h.salt), b64(h.hash))
}

// decodePHC returns the hash that encodePHC made text of.
func decodePHC(text string) (phc, error) {
	bad := fmt.Errorf("not an argon2id hash in PHC form")
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return phc{}, bad
	}
	var h phc
	c := &h.cost
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &c.MemoryKiB, &c.Passes, &c.Threads); err != nil || !c.valid() {
		return phc{}, bad
	}
	strict := base64.RawStdEncoding.Strict()
	var saltErr, hashErr error
	h.salt, saltErr = strict.DecodeString(parts[4])
	h.hash, hashErr = strict.DecodeString(parts[5])
	if saltErr != nil || hashErr != nil || len(h.salt) != saltBytes || len(h.hash) != hashBytes || encodePHC(h) != text {
		return phc{}, bad
	}
	return h, nil
}
