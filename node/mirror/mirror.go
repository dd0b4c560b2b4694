package mirror

import (
	"context"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/sync/errgroup"

	"berth/compute"
	"berth/loop"
)

// KeyBytes is the length of a Mirror's key.
const KeyBytes = 2 * chacha20poly1305.KeySize

// Times and limits of a mirror.
const (
	roundPeriod = 5 * time.Minute  // How often the leader looks for blobs without a copy.
	listPeriod  = time.Hour        // How often it lists the store, and removes what nothing refers to.
	minAge      = time.Hour        // A younger copy may be of a blob that the state will refer to.
	getTime     = 20 * time.Second // For a blob that no server has.
	putTime     = 2 * time.Minute
	putsAtOnce  = 4  // Blobs in memory.
	maxFailed   = 16 // Failures after which a round ends.
)

// sealVersion is the first byte of each copy. A nonce and the ciphertext follow.
const sealVersion = 1

// Store keeps data under names of 32 bytes, outside of the cluster.
type Store interface {
	Put(ctx context.Context, name compute.Hash, data []byte) error
	// Get returns the data of a name. The code is not_found if there is none.
	Get(ctx context.Context, name compute.Hash) ([]byte, error)
	// All returns when the data of each name was put.
	All(ctx context.Context) (map[compute.Hash]time.Time, error)
	// Delete removes the data of a name, if there is any.
	Delete(ctx context.Context, name compute.Hash) error
}

// Config holds the settings and dependencies of a Mirror.
type Config struct {
	To   Store   // Gets the copies; nil for none.
	From []Store // Others, in which copies may be.
	Key  []byte  // KeyBytes, the same on all servers.
	// Live returns the blobs to which the newest state refers. An error means that some are
	// not known.
	Live func(ctx context.Context) (map[compute.Hash]bool, error)
	// Blob returns a blob of the servers.
	Blob       func(ctx context.Context, hash compute.Hash) ([]byte, error)
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Mirror keeps copies of blobs. Its methods are safe for concurrent use.
type Mirror struct {
	cfg     Config
	aead    cipher.AEAD
	names   []byte // The key of names.
	missing prometheus.Gauge

	round  sync.Mutex            // Held by a round.
	copied map[compute.Hash]bool // Names that the store has, as far as is known; nil before it was listed.
	listed time.Time
}

// New returns a Mirror.
func New(cfg Config) (*Mirror, error) {
	if len(cfg.Key) != KeyBytes {
		return nil, fmt.Errorf("open mirror: a key of %d bytes", len(cfg.Key))
	}
	aead, err := chacha20poly1305.NewX(cfg.Key[:chacha20poly1305.KeySize])
	if err != nil {
		return nil, fmt.Errorf("open mirror: %w", err)
	}
	m := &Mirror{cfg: cfg, aead: aead, names: cfg.Key[chacha20poly1305.KeySize:]}
	m.missing = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "berth_object_store_missing",
		Help: "Blobs of code, archives, metrics and outputs without a copy in the object store after the leader's last round.",
	})
	cfg.Registerer.MustRegister(m.missing)
	return m, nil
}

// Lead copies blobs periodically until ctx ends. It is called while this node leads.
func (m *Mirror) Lead(ctx context.Context) {
	m.forget()
	loop.Every(ctx, roundPeriod, func() {
		copied, err := m.Round(ctx, minAge)
		if err != nil && ctx.Err() == nil {
			m.cfg.Logger.Warn("blobs not copied to the object store", "err", err)
		}
		if copied > 0 {
			m.cfg.Logger.Info("blobs copied to the object store", "count", copied)
		}
	})
	m.missing.Set(0) // The next leader counts.
}

// forget has the next round list the store: another leader may have removed copies.
func (m *Mirror) forget() {
	m.round.Lock()
	defer m.round.Unlock()
	m.copied = nil
}

// Round copies the blobs that have no copy. Once in a while it first lists the store, and
// removes the copies older than age to whose blobs the state does not refer.
func (m *Mirror) Round(ctx context.Context, age time.Duration) (copied int, err error) {
	m.round.Lock()
	defer m.round.Unlock()
	live, err := m.cfg.Live(ctx)
	if err != nil {
		return 0, err
	}
	missing := make(map[compute.Hash]compute.Hash, len(live)) // Blobs by the names of their copies.
	for hash := range live {
		missing[m.name(hash)] = hash
	}
	if m.copied == nil || m.cfg.Now().Sub(m.listed) >= listPeriod {
		if err := m.list(ctx, func(name compute.Hash) bool { _, ok := missing[name]; return ok }, age); err != nil {
			return 0, err
		}
	}
	for name := range m.copied {
		delete(missing, name)
	}
	copied, err = m.copyAll(ctx, missing)
	m.missing.Set(float64(len(missing) - copied))
	return copied, err
}

// copyAll copies blobs, given by the names of their copies. It gives up when too many fail.
func (m *Mirror) copyAll(ctx context.Context, missing map[compute.Hash]compute.Hash) (copied int, err error) {
	var mu sync.Mutex
	var failed []error
	var group errgroup.Group
	group.SetLimit(putsAtOnce)
	for name, hash := range missing {
		group.Go(func() error {
			mu.Lock()
			end := len(failed) >= maxFailed || ctx.Err() != nil
			mu.Unlock()
			if end {
				return nil
			}
			err := m.copy(ctx, name, hash)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, err)
				return nil
			}
			m.copied[name] = true
			copied++
			return nil
		})
	}
	_ = group.Wait() // The errors are in failed.
	if len(failed) > 0 {
		return copied, fmt.Errorf("%d of %d blobs: %w", len(missing)-copied, len(missing), failed[0])
	}
	return copied, ctx.Err()
}

// list finds out which copies the store has, and removes the old ones that are not live.
func (m *Mirror) list(ctx context.Context, live func(name compute.Hash) bool, age time.Duration) error {
	all, err := m.cfg.To.All(ctx)
	if err != nil {
		return err
	}
	old := m.cfg.Now().Add(-age)
	m.copied = make(map[compute.Hash]bool, len(all))
	for name, at := range all {
		if live(name) || !at.Before(old) {
			m.copied[name] = true
			continue
		}
		if err := m.cfg.To.Delete(ctx, name); err != nil {
			return err
		}
	}
	m.listed = m.cfg.Now()
	return nil
}

// copy puts a copy of a blob into the store.
func (m *Mirror) copy(ctx context.Context, name, hash compute.Hash) error {
	ctx, cancel := context.WithTimeout(ctx, putTime)
	defer cancel()
	data, err := m.cfg.Blob(ctx, hash)
	if err != nil {
		return err
	}
	return m.cfg.To.Put(ctx, name, m.seal(hash, data))
}

// Get returns a blob from its copy. The code is not_found if no store has one.
func (m *Mirror) Get(ctx context.Context, hash compute.Hash) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, getTime)
	defer cancel()
	stores := m.cfg.From
	if m.cfg.To != nil {
		stores = append([]Store{m.cfg.To}, stores...)
	}
	notFound := compute.Errorf(compute.CodeNotFound, "The object store has no copy of blob %x.", hash[:8])
	failed := error(notFound)
	for _, s := range stores {
		sealed, err := s.Get(ctx, m.name(hash))
		if err == nil {
			return m.open(hash, sealed)
		}
		if compute.CodeOf(err) != compute.CodeNotFound && errors.Is(failed, notFound) {
			failed = err
		}
	}
	return nil, failed
}

// name returns the name of the copy of a blob: HMAC-SHA-256 of its hash.
func (m *Mirror) name(hash compute.Hash) compute.Hash {
	mac := hmac.New(sha256.New, m.names)
	mac.Write(hash[:])
	return compute.Hash(mac.Sum(nil))
}

// seal encrypts a blob with XChaCha20-Poly1305, whose random nonces of 192 bits do not
// repeat (RFC 8439 and draft-irtf-cfrg-xchacha-03). Its hash is authenticated with it.
func (m *Mirror) seal(hash compute.Hash, data []byte) []byte {
	start := 1 + m.aead.NonceSize()
	out := make([]byte, start, start+len(data)+m.aead.Overhead())
	out[0] = sealVersion
	_, _ = rand.Read(out[1:start]) // It never fails.
	return m.aead.Seal(out, out[1:start], data, hash[:])
}

// open decrypts a blob.
func (m *Mirror) open(hash compute.Hash, sealed []byte) ([]byte, error) {
	start := 1 + m.aead.NonceSize()
	if len(sealed) < start || sealed[0] != sealVersion {
		return nil, compute.Errorf(compute.CodeUnavailable, "The copy of blob %x in the object store is damaged.", hash[:8])
	}
	data, err := m.aead.Open(nil, sealed[1:start], sealed[start:], hash[:])
	if err != nil || sha256.Sum256(data) != hash {
		return nil, compute.Errorf(compute.CodeUnavailable,
			"The copy of blob %x in the object store is damaged, or of another master key.", hash[:8])
	}
	return data, nil
}
