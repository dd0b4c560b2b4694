package mirror

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"berth/compute"
	"berth/loop"
)

// Times and limits of a mirror.
const (
	roundPeriod = 5 * time.Minute    // How often the leader compares the blobs with their copies.
	listPeriod  = time.Hour          // How often it lists the store.
	minAge      = time.Hour          // A younger copy may be of a blob that the state will refer to.
	trashAge    = 7 * 24 * time.Hour // Then a copy in the trash is deleted.
	listTime    = time.Hour          // For one list, and for all changes that follow from it.
	putTime     = 2 * time.Minute
	getTime     = 10 * time.Second // For a copy, of one store.
	silence     = 30 * time.Second // A store that has failed is not asked for so long.
	atOnce      = 4                // Blobs in memory, and changes of the store.
	maxFailed   = 16               // Failures after which a round ends.
	copyRate    = 32 << 20         // Bytes a second: others need the disks and the network too.
)

// Store keeps data under names of 32 bytes, outside of the cluster, and has a trash.
type Store interface {
	Put(ctx context.Context, name compute.Hash, data []byte) error
	// Get returns the data of a name, from the trash too. The code is not_found if there is
	// none.
	Get(ctx context.Context, name compute.Hash) ([]byte, error)
	// All returns when the data of each name was put.
	All(ctx context.Context) (map[compute.Hash]time.Time, error)
	// Trash returns when each name was discarded.
	Trash(ctx context.Context) (map[compute.Hash]time.Time, error)
	Discard(ctx context.Context, name compute.Hash) error // Moves it to the trash.
	Restore(ctx context.Context, name compute.Hash) error // Moves it back.
	Delete(ctx context.Context, name compute.Hash) error  // Deletes it from the trash.
}

// Key encrypts copies and names them.
type Key interface {
	Name(hash compute.Hash) compute.Hash
	Seal(data, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

// Config holds the settings and dependencies of a Mirror.
type Config struct {
	To   Store   // Gets the copies; nil for none.
	From []Store // Others, in which copies may be.
	Key  Key     // The same on all servers.
	// Live returns the blobs to which the newest state refers, and the index of that state.
	// With an error it returns those that are known.
	Live func(ctx context.Context) (live map[compute.Hash]bool, index uint64, err error)
	// Blob returns a blob of the servers. The code is not_found if none has it.
	Blob       func(ctx context.Context, hash compute.Hash) ([]byte, error)
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Mirror keeps copies of blobs. Its methods are safe for concurrent use.
type Mirror struct {
	cfg     Config
	metrics *metrics
	limit   *rate.Limiter
	sources []*source

	round  sync.Mutex                 // Held by a round.
	copied map[compute.Hash]bool      // Names that the store has, as far as is known; nil before it was listed.
	lost   map[compute.Hash]bool      // Blobs that were nowhere when they were to be copied.
	all    map[compute.Hash]time.Time // Copies in the newest list.
	trash  map[compute.Hash]time.Time
	listed time.Time
	done   uint64 // The index of the state whose blobs are all copied or lost.
}

// source is a store that is read.
type source struct {
	store Store

	mu     sync.Mutex
	silent time.Time // Until then it is not asked.
}

// New returns a Mirror.
func New(cfg Config) *Mirror {
	m := &Mirror{cfg: cfg, metrics: newMetrics(cfg.Registerer), limit: rate.NewLimiter(copyRate, copyRate)}
	if cfg.To != nil {
		m.sources = append(m.sources, &source{store: cfg.To})
	}
	for _, store := range cfg.From {
		m.sources = append(m.sources, &source{store: store})
	}
	return m
}

// Lead copies blobs periodically until ctx ends. It is called while this node leads.
func (m *Mirror) Lead(ctx context.Context) {
	m.forget()
	loop.Every(ctx, roundPeriod, func() {
		copied, err := m.Round(ctx, minAge)
		if err != nil && ctx.Err() == nil {
			m.cfg.Logger.Warn("blobs not copied to the object store", "err", compute.Detailed(err))
		}
		if copied > 0 {
			m.cfg.Logger.Info("blobs copied to the object store", "count", copied)
		}
	})
	m.metrics.clear() // The next leader counts.
}

// forget has the next round list the store: another leader may have changed it.
func (m *Mirror) forget() {
	m.round.Lock()
	defer m.round.Unlock()
	m.copied, m.done = nil, 0
}

// Round copies the blobs that have no copy. Once in a while it first lists the store, and
// discards the copies older than age to whose blobs the state does not refer. It goes on
// as far as it can beside failures, and returns the first.
func (m *Mirror) Round(ctx context.Context, age time.Duration) (copied int, err error) {
	m.round.Lock()
	defer m.round.Unlock()
	defer func() { m.metrics.ended(err) }()
	live, index, err := m.cfg.Live(ctx)
	known := err == nil
	list := m.copied == nil || m.cfg.Now().Sub(m.listed) >= listPeriod
	if known && !list && index == m.done {
		return 0, nil
	}
	names := make(map[compute.Hash]compute.Hash, len(live)) // Blobs by the names of their copies.
	for hash := range live {
		names[m.cfg.Key.Name(hash)] = hash
	}
	if list {
		if failed := m.list(ctx, names); failed != nil {
			err = errors.Join(err, failed)
		}
		if m.copied == nil {
			return 0, err
		}
	}
	copied, failed := m.copyAll(ctx, names)
	if failed != nil {
		err = errors.Join(err, failed)
	}
	if list && known {
		if failed = m.tidy(ctx, names, age); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	if list && err == nil {
		m.listed = m.cfg.Now() // Else the next round tries again.
	}
	if err == nil {
		m.done = index
	}
	return copied, err
}

// list finds out which copies the store has, and moves those of live blobs back from the
// trash.
func (m *Mirror) list(ctx context.Context, live map[compute.Hash]compute.Hash) error {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	all, err := m.cfg.To.All(ctx)
	if err != nil {
		return err
	}
	trash, err := m.cfg.To.Trash(ctx)
	if err != nil {
		return err
	}
	m.all, m.trash = all, trash
	m.copied, m.lost = make(map[compute.Hash]bool, len(all)), make(map[compute.Hash]bool)
	for name := range all {
		m.copied[name] = true
	}
	var back []compute.Hash
	for name := range trash {
		if _, lives := live[name]; lives && !m.copied[name] {
			back = append(back, name)
		}
	}
	_, err = each(ctx, back, m.cfg.To.Restore, func(name compute.Hash, err error) error {
		if err == nil {
			m.copied[name] = true
			delete(m.trash, name)
		}
		return err
	})
	return err
}

// tidy discards the old copies that are not live, and deletes from the trash what has been
// there for long or has another copy.
func (m *Mirror) tidy(ctx context.Context, live map[compute.Hash]compute.Hash, age time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	var away, gone []compute.Hash
	now := m.cfg.Now()
	for name, at := range m.all {
		if _, lives := live[name]; !lives && now.Sub(at) > age {
			away = append(away, name)
		}
	}
	for name, at := range m.trash {
		if m.copied[name] || now.Sub(at) >= trashAge {
			gone = append(gone, name)
		}
	}
	_, err := each(ctx, away, m.cfg.To.Discard, func(name compute.Hash, err error) error {
		if err == nil {
			delete(m.copied, name)
		}
		return err
	})
	_, failed := each(ctx, gone, m.cfg.To.Delete, func(_ compute.Hash, err error) error { return err })
	m.all, m.trash = nil, nil
	return errors.Join(err, failed)
}

// copyAll copies the blobs that have no copy, of all those by the names of their copies.
// Those that no server has are no failure.
func (m *Mirror) copyAll(ctx context.Context, names map[compute.Hash]compute.Hash) (copied int, err error) {
	var missing []compute.Hash
	lost := 0
	for name, hash := range names {
		switch {
		case m.lost[hash]:
			lost++
		case !m.copied[name]:
			missing = append(missing, name)
		}
	}
	one := func(ctx context.Context, name compute.Hash) error { return m.copy(ctx, name, names[name]) }
	copied, err = each(ctx, missing, one, func(name compute.Hash, err error) error {
		if err == nil {
			m.copied[name] = true
		}
		if compute.CodeOf(err) == compute.CodeNotFound {
			m.lost[names[name]] = true
			return errLost
		}
		return err
	})
	m.metrics.missing.Set(float64(lost + len(missing) - copied))
	if err != nil {
		err = fmt.Errorf("%d of %d blobs: %w", len(missing)-copied, len(missing), err)
	}
	return copied, err
}

// errLost is that no server has a blob.
var errLost = errors.New("no server has the blob")

// each does one thing for each name, some at a time, and calls done with the result, one after
// the other. It returns how many succeeded, and the first error of done but errLost. After
// maxFailed errors it gives up.
func each(
	ctx context.Context, names []compute.Hash,
	one func(context.Context, compute.Hash) error, done func(compute.Hash, error) error,
) (succeeded int, err error) {
	var mu sync.Mutex
	var failed []error
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, name := range names {
		mu.Lock()
		end := len(failed) >= maxFailed || ctx.Err() != nil
		mu.Unlock()
		if end {
			break
		}
		group.Go(func() error {
			err := one(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			switch err = done(name, err); {
			case err == nil:
				succeeded++
			case !errors.Is(err, errLost):
				failed = append(failed, err)
			}
			return nil
		})
	}
	_ = group.Wait() // The errors are in failed.
	if len(failed) > 0 {
		return succeeded, failed[0]
	}
	return succeeded, ctx.Err()
}

// copy puts a copy of a blob into the store. The code is not_found if no server has it, and no
// other store.
func (m *Mirror) copy(ctx context.Context, name, hash compute.Hash) error {
	ctx, cancel := context.WithTimeout(ctx, putTime)
	defer cancel()
	data, err := m.cfg.Blob(ctx, hash)
	if compute.CodeOf(err) == compute.CodeNotFound && len(m.cfg.From) > 0 {
		data, err = m.read(ctx, m.sources[len(m.sources)-len(m.cfg.From):], hash)
	}
	if err != nil {
		return err
	}
	if err := m.limit.WaitN(ctx, min(len(data), m.limit.Burst())); err != nil {
		return err
	}
	sealed, err := m.cfg.Key.Seal(data, hash[:])
	if err == nil {
		err = m.cfg.To.Put(ctx, name, sealed)
	}
	if err != nil {
		return compute.Errorf(compute.CodeUnavailable, "The object store takes no copy: %w", err)
	}
	return nil
}

// Get returns a blob from its copy. The code is not_found if no store has one. A store that
// does not answer is not asked again for a while.
func (m *Mirror) Get(ctx context.Context, hash compute.Hash) ([]byte, error) {
	return m.read(ctx, m.sources, hash)
}

// read is Get of some of the stores.
func (m *Mirror) read(ctx context.Context, from []*source, hash compute.Hash) ([]byte, error) {
	var failed error
	for _, s := range from {
		sealed, err := s.get(ctx, m.cfg.Key.Name(hash), m.cfg.Now)
		if err == nil {
			return m.open(hash, sealed)
		}
		if compute.CodeOf(err) != compute.CodeNotFound && failed == nil {
			failed = err
		}
	}
	if failed == nil {
		failed = compute.Errorf(compute.CodeNotFound, "The object store has no copy of blob %x.", hash[:8])
	}
	return nil, failed
}

// open decrypts a copy.
func (m *Mirror) open(hash compute.Hash, sealed []byte) ([]byte, error) {
	data, err := m.cfg.Key.Open(sealed, hash[:])
	if err != nil || sha256.Sum256(data) != hash {
		return nil, compute.Errorf(compute.CodeUnavailable,
			"The copy of blob %x in the object store is damaged, or of another master key.", hash[:8])
	}
	return data, nil
}

// get returns the data of a name, unless the store has failed a moment ago.
func (s *source) get(ctx context.Context, name compute.Hash, now func() time.Time) ([]byte, error) {
	s.mu.Lock()
	silent := s.silent
	s.mu.Unlock()
	if now().Before(silent) {
		return nil, compute.Errorf(compute.CodeUnavailable, "The object store has just not answered.").Retry(silence)
	}
	within, cancel := context.WithTimeout(ctx, getTime)
	defer cancel()
	data, err := s.store.Get(within, name)
	if err != nil && compute.CodeOf(err) != compute.CodeNotFound && ctx.Err() == nil {
		s.mu.Lock()
		s.silent = now().Add(silence)
		s.mu.Unlock()
	}
	return data, err
}
