package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"strings"
	"time"

	"golang.org/x/crypto/argon2"

	"berth/compute"
	"berth/loop"
)

const (
	// MinPassword is the shortest password in characters.
	MinPassword = 10
	// MaxPassword is the longest password in bytes.
	MaxPassword = 256

	saltBytes = 16
	hashBytes = 32

	hashesAtOnce = 1  // Each holds its memory: 64 MiB by default.
	maxCallers   = 64 // Callers that hash or wait for their turn; more are sent away,
	maxOfNetwork = 16 // and those of one network.
	busyRetry    = 5 * time.Second

	minMemoryKiB = 19 << 10 // OWASP's floor, with two passes.
	minPasses    = 2
	maxMemoryKiB = 1 << 20
	maxPasses    = 16
	maxThreads   = 16
)

// PasswordCost is the cost of one argon2id hash.
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

// Passwords hashes and verifies passwords, one at a time. Networks that wait for
// their turn alternate. All methods may be called at the same time.
type Passwords struct {
	cost   PasswordCost
	random io.Reader
	dummy  string // Nobody's hash.
	turns  *loop.FairLimiter[string]
	memory hashMemory // Used by the caller whose turn it is.
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
		turns:  loop.NewFairLimiter[string](hashesAtOnce).Bound(maxCallers, maxOfNetwork),
		memory: hashMemory{cycles: gcCycles, collect: runtime.GC},
	}, nil
}

// Hash returns the argon2id hash of a new password in PHC form, for a caller
// from a network. The code is invalid for a password that is too short or too
// long, and rate_limited when too many others wait.
func (p *Passwords) Hash(ctx context.Context, from, password string) (string, error) {
	if n := len([]rune(password)); n < MinPassword || len(password) > MaxPassword {
		return "", compute.Errorf(compute.CodeInvalid,
			"A password must have at least %d characters and at most %d bytes.", MinPassword, MaxPassword)
	}
	salt := make([]byte, saltBytes)
	if _, err := io.ReadFull(p.random, salt); err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	hash, err := p.derive(ctx, from, password, phc{cost: p.cost, salt: salt})
	if err != nil {
		return "", err
	}
	return encodePHC(phc{p.cost, salt, hash}), nil
}

// Verify reports whether password is the one that stored is the hash of, and
// whether it should be hashed again because the cost has changed. With an
// empty stored, for a user who does not exist, it works as long and says no. from
// and the code rate_limited are as with Hash.
func (p *Passwords) Verify(ctx context.Context, from, password, stored string) (ok, rehash bool, err error) {
	known := stored != "" && len(password) <= MaxPassword
	if !known {
		stored, password = p.dummy, ""
	}
	want, err := decodePHC(stored)
	if err != nil {
		return false, false, fmt.Errorf("verify password: %w", err)
	}
	got, err := p.derive(ctx, from, password, want)
	if err != nil {
		return false, false, err
	}
	ok = subtle.ConstantTimeCompare(got, want.hash) == 1 && known
	return ok, ok && want.cost != p.cost, nil
}

// derive computes the hash, after it waited for its turn.
func (p *Passwords) derive(ctx context.Context, from, password string, of phc) ([]byte, error) {
	done, err := p.turns.Take(ctx, from)
	switch {
	case errors.Is(err, loop.ErrFull):
		return nil, compute.Errorf(compute.CodeRateLimited, "Too many sign-ins at the moment.").Retry(busyRetry)
	case err != nil:
		return nil, fmt.Errorf("wait to hash password: %w", err)
	}
	defer done()
	if ctx.Err() != nil { // Nobody waits for the hash.
		return nil, fmt.Errorf("wait to hash password: %w", ctx.Err())
	}
	p.memory.reclaim()
	defer p.memory.used()
	c := of.cost
	return argon2.IDKey([]byte(password), of.salt, c.Passes, c.MemoryKiB, c.Threads, hashBytes), nil
}

// hashMemory has the memory of one hash collected before the next one allocates
// its own. argon2 accepts no buffer. Otherwise the garbage of several hashes
// would lie on the heap at once.
type hashMemory struct {
	cycles  func() uint64 // Garbage collections so far.
	collect func()

	garbage bool   // There was a hash,
	at      uint64 // which ended after so many collections.
}

// reclaim collects the memory of the last hash, unless that has happened. The
// first collection that ends after a hash may have begun before its end.
func (m *hashMemory) reclaim() {
	if m.garbage && m.cycles() < m.at+2 {
		m.collect()
	}
	m.garbage = false
}

// used records that a hash has ended.
func (m *hashMemory) used() { m.garbage, m.at = true, m.cycles() }

// gcCycles returns how many garbage collections have ended.
func gcCycles() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
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
