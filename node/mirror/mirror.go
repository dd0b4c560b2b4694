package mirror

import (
	"context"
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
	putsAtOnce  = 4                // Blobs in memory.
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

// Config holds the settings and dependencies of a Mirror.
type Config struct {
	To   Store   // Gets the copies; nil for none.
	From []Store // Others, in which copies may be.
	Key  []byte  // KeyBytes, the same on all servers.
	// Live returns the blobs to which the newest state refers, and the index of that state.
	// With an error it returns those that are known.
	Live func(ctx context.Context) (live map[compute.Hash]bool, index uint64, err error)
	// Blob returns a blob of the servers.
	Blob       func(ctx context.Context, hash compute.Hash) ([]byte, error)
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Mirror keeps copies of blobs. Its methods are safe for concurrent use.
type Mirror struct {
	cfg     Config
	sealer  *sealer
	metrics *metrics
	limit   *rate.Limiter
	sources []*source

	round  sync.Mutex            // Held by a round.
	copied map[compute.Hash]bool // Names that the store has, as far as is known; nil before it was listed.
	lost   map[compute.Hash]bool // Blobs that no server had when they were to be copied.
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
func New(cfg Config) (*Mirror, error) {
	s, err := newSealer(cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("open mirror: %w", err)
	}
	m := &Mirror{cfg: cfg, sealer: s, metrics: newMetrics(cfg.Registerer), limit: rate.NewLimiter(copyRate, copyRate)}
	if cfg.To != nil {
		m.sources = append(m.sources, &source{store: cfg.To})
	}
	for _, store := range cfg.From {
		m.sources = append(m.sources, &source{store: store})
	}
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
		names[m.sealer.name(hash)] = hash
	}
	var all map[compute.Hash]time.Time
	if list {
		var failed error
		if all, failed = m.list(ctx); failed != nil {
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
	if all != nil && known {
		if failed = m.tidy(ctx, all, names, age); failed != nil {
			err = errors.Join(err, failed)
		} else {
			m.listed = m.cfg.Now() // Else the next round tries again.
		}
	}
	if err == nil {
		m.done = index
	}
	return copied, err
}

// list finds out which copies the store has, and when each was put.
func (m *Mirror) list(ctx context.Context) (all map[compute.Hash]time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	if all, err = m.cfg.To.All(ctx); err != nil {
		return nil, err
	}
	m.copied, m.lost = make(map[compute.Hash]bool, len(all)), make(map[compute.Hash]bool)
	for name := range all {
		m.copied[name] = true
	}
	return all, nil
}

// tidy moves live copies back from the trash, discards the old ones that are not live, and
// deletes what has been in the trash for long. It goes on beside some failures, and returns
// the first.
func (m *Mirror) tidy(
	ctx context.Context, all map[compute.Hash]time.Time, live map[compute.Hash]compute.Hash, age time.Duration,
) error {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	trash, err := m.cfg.To.Trash(ctx)
	if err != nil {
		return err
	}
	var back, away, gone []compute.Hash
	now := m.cfg.Now()
	for name, at := range trash {
		_, lives := live[name]
		switch {
		case lives && !m.copied[name]:
			back = append(back, name)
		case lives, now.Sub(at) >= trashAge:
			gone = append(gone, name)
		}
	}
	for name, at := range all {
		if _, lives := live[name]; !lives && now.Sub(at) > age {
			away = append(away, name)
		}
	}
	return errors.Join(
		m.change(ctx, back, m.cfg.To.Restore, func(name compute.Hash) { m.copied[name] = true }),
		m.change(ctx, away, m.cfg.To.Discard, func(name compute.Hash) { delete(m.copied, name) }),
		m.change(ctx, gone, m.cfg.To.Delete, func(compute.Hash) {}),
	)
}

// change changes copies, and calls done for each. It gives up when too many fail.
func (m *Mirror) change(
	ctx context.Context, names []compute.Hash, one func(context.Context, compute.Hash) error, done func(compute.Hash),
) error {
	var mu sync.Mutex
	var failed []error
	var group errgroup.Group
	group.SetLimit(putsAtOnce)
	for _, name := range names {
		mu.Lock()
		end := len(failed) >= maxFailed
		mu.Unlock()
		if end {
			break
		}
		group.Go(func() error {
			err := one(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, err)
			} else {
				done(name)
			}
			return nil
		})
	}
	_ = group.Wait() // The errors are in failed.
	if len(failed) > 0 {
		return failed[0]
	}
	return nil
}

// copyAll copies the blobs that have no copy, of all those by the names of their copies. It
// gives up when too many fail. Those that no server has are no failure.
func (m *Mirror) copyAll(ctx context.Context, names map[compute.Hash]compute.Hash) (copied int, err error) {
	missing := make(map[compute.Hash]compute.Hash)
	for name, hash := range names {
		if !m.copied[name] {
			missing[name] = hash
		}
	}
	var mu sync.Mutex
	var failed []error
	var group errgroup.Group
	group.SetLimit(putsAtOnce)
	for name, hash := range missing {
		mu.Lock()
		skip, end := m.lost[hash], len(failed) >= maxFailed || ctx.Err() != nil
		mu.Unlock()
		if end {
			break
		}
		if skip {
			continue
		}
		group.Go(func() error {
			err := m.copy(ctx, name, hash)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				m.copied[name] = true
				copied++
			case compute.CodeOf(err) == compute.CodeNotFound:
				m.lost[hash] = true
			default:
				failed = append(failed, err)
			}
			return nil
		})
	}
	_ = group.Wait() // The errors are in failed.
	m.metrics.missing.Set(float64(len(missing) - copied))
	if len(failed) > 0 {
		return copied, fmt.Errorf("%d of %d blobs: %w", len(missing)-copied, len(missing), failed[0])
	}
	return copied, ctx.Err()
}

// copy puts a copy of a blob into the store. The code is not_found if no server has it.
func (m *Mirror) copy(ctx context.Context, name, hash compute.Hash) error {
	ctx, cancel := context.WithTimeout(ctx, putTime)
	defer cancel()
	data, err := m.cfg.Blob(ctx, hash)
	if err != nil {
		return err
	}
	if err := m.limit.WaitN(ctx, min(len(data), m.limit.Burst())); err != nil {
		return err
	}
	if err := m.cfg.To.Put(ctx, name, m.sealer.seal(hash, data)); err != nil {
		return compute.Errorf(compute.CodeUnavailable, "The object store takes no copy: %w", err)
	}
	return nil
}

// Get returns a blob from its copy. The code is not_found if no store has one. A store that
// does not answer is not asked again for a while.
func (m *Mirror) Get(ctx context.Context, hash compute.Hash) ([]byte, error) {
	var failed error
	for _, s := range m.sources {
		sealed, err := s.get(ctx, m.sealer.name(hash), m.cfg.Now)
		if err == nil {
			return m.sealer.open(hash, sealed)
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
