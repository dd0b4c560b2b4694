package replication

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/archive"
	"berth/loop"
	"berth/node/archives"
	"berth/node/storage"
	"berth/node/trees"
)

// Times and limits of repairs.
const (
	repairPeriod = 30 * time.Second // How often a server checks for missing archives.
	bundlePeriod = 10 * time.Minute // How often it checks for missing bundles, although no server joined or left.
	fetchTimeout = 2 * time.Minute  // For one blob from another server.
	maxFailed    = 16               // Failures after which a scan ends. Each may take a while.
	leavePeriod  = 2 * time.Minute  // Longer than a removal takes from its first query to its entry.
	fullPeriod   = 2 * time.Minute  // The same while too few copies exist, and this disk is full.
	downPeriod   = 10 * time.Minute // Then the copies of bundles on a down server do not count. It may return.
	repairRate   = 32 << 20         // Bytes a second that a server fetches: others need the disks and the network too.
	trimBatch    = 1 << 10          // Copies about which other servers are asked at once.
)

// Missing counts the blobs that a server should have and lacks. Blobs that no
// server has do not count, because waiting for them is useless.
type Missing struct {
	Archives int          `cbor:"1,keyasint"`
	Bundles  int          `cbor:"2,keyasint"`
	Scanned  bool         `cbor:"3,keyasint"` // The server has scanned all its blobs since it was asked.
	First    compute.Hash `cbor:"4,keyasint"` // One of the bundles.
}

// None reports whether the server has all blobs that it should have.
func (m Missing) None() bool { return m.Scanned && m.Archives+m.Bundles == 0 }

// String describes the missing blobs, as the end of a sentence about the
// server.
func (m Missing) String() string {
	what := fmt.Sprintf("%d archives of old executions and %d bundles of code", m.Archives, m.Bundles)
	if m.Bundles > 0 && m.First != (compute.Hash{}) {
		what += " (such as blob " + storage.Name(m.First) + ")"
	}
	switch {
	case m.Scanned:
		return "lacks " + what
	case m.Archives+m.Bundles == 0:
		return "is still checking for missing blobs"
	}
	return "is still checking for missing blobs, and lacked " + what
}

// Repairer fetches the blobs that this server should have: those of all
// archives, and its share of the bundles. The share changes whenever a server
// joins, leaves, is about to leave, is down for long, or returns.
type Repairer struct {
	view    func() *fsm.View
	blobs   *storage.Blobs
	trees   *trees.Cache
	objects Objects
	now     func() time.Time
	logger  *slog.Logger
	metrics *metrics
	limit   *rate.Limiter
	wake    chan struct{} // A signal of size one: a caller waits for a scan.

	// scanning is held by a scan, and while copies are trimmed: a scan for a server that
	// leaves must not count a copy that is about to go. It is taken before mu.
	scanning sync.Mutex

	last share // Found by the last scan of bundles that came to its end.

	mu      sync.Mutex
	begun   uint64        // The number of scans begun.
	ended   uint64        // The number of the last complete scan.
	changed chan struct{} // Closed at the end of a scan.
	lacks   Missing
	leavers map[compute.NodeID]time.Time // Servers that may be removed at any moment, with the end of that period.
	silent  []compute.NodeID             // Servers that do not answer the callers that wait for the next scan.
}

// share is this server's share of the bundles, as far as its disk takes it.
type share struct {
	servers []compute.NodeID // The servers for which it was fetched.
	full    []compute.NodeID // Those of the others whose disks were full then.
	short   bool             // This disk was full.
	refused int              // Bundles that nobody has enough copies of.
	one     compute.Hash     // One of them.
	next    time.Time        // When to scan again although nothing has changed.
}

// absent are the servers whose copies a scan does not count.
type absent struct {
	leavers []compute.NodeID // Their blobs are fetched before they leave.
	silent  []compute.NodeID
}

// NewRepairer returns the repairer of a server.
func NewRepairer(
	view func() *fsm.View, blobs *storage.Blobs, trees *trees.Cache, objects Objects, now func() time.Time,
	logger *slog.Logger, reg prometheus.Registerer,
) *Repairer {
	r := &Repairer{
		view: view, blobs: blobs, trees: trees, objects: objects, now: now, logger: logger,
		wake: make(chan struct{}, 1), changed: make(chan struct{}), leavers: make(map[compute.NodeID]time.Time),
		metrics: newMetrics(reg), limit: rate.NewLimiter(repairRate, storage.MaxBlob),
	}
	return r
}

// Run fetches missing blobs until ctx ends.
func (r *Repairer) Run(ctx context.Context) {
	loop.OnChange(ctx, repairPeriod, func() <-chan struct{} { return r.wake }, func() { r.scan(ctx) })
}

// scan fetches the blobs that this server lacks and records those that are
// still missing.
func (r *Repairer) scan(ctx context.Context) {
	r.scanning.Lock()
	defer r.scanning.Unlock()
	number, without := r.begin()
	r.blobs.TrySpace()
	l := Missing{Scanned: true}
	l.Archives = r.fetchArchives(ctx)
	full := r.blobs.FullNodes(ctx, slices.Concat(without.leavers, without.silent))
	l.Bundles, l.First = r.fetchBundles(ctx, without, full)
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.lacks = number, l
	close(r.changed)
	r.changed = make(chan struct{})
}

// begin starts a scan. It returns its number and the servers whose copies must
// not count.
func (r *Repairer) begin() (number uint64, without absent) {
	servers, now := serversOf(r.view()), r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun++
	maps.DeleteFunc(r.leavers, func(id compute.NodeID, until time.Time) bool {
		return now.After(until) || !slices.Contains(servers, id)
	})
	without.leavers, without.silent = slices.Collect(maps.Keys(r.leavers)), r.silent
	r.silent = nil
	return r.begun, without
}

// Wait waits for a scan that ignores the copies of leaver and of silent
// servers, and returns the blobs that are missing on this server. When ctx ends
// first it returns the result of the previous scan. Repairs continue
// afterwards. For leavePeriod no copy of leaver counts: a server that is
// removed next must not have the only copies of leaver's blobs.
func (r *Repairer) Wait(ctx context.Context, leaver compute.NodeID, silent []compute.NodeID) Missing {
	r.mu.Lock()
	number := r.begun + 1 // A scan in progress may have missed the blobs in question.
	r.leavers[leaver] = r.now().Add(leavePeriod)
	r.silent = append(r.silent, silent...)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
	for {
		r.mu.Lock()
		lacks, changed := r.lacks, r.changed
		lacks.Scanned = r.ended >= number
		r.mu.Unlock()
		if lacks.Scanned {
			return lacks
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return lacks
		}
	}
}

// fetchArchives fetches the blobs of archives. It returns how many of them it
// could not fetch although some server may have them.
func (r *Repairer) fetchArchives(ctx context.Context) int {
	var rows []*archive.Record
	for row := range r.view().Archives() {
		if !r.blobs.Has(row.Blob) {
			rows = append(rows, row)
		}
	}
	left := len(rows)
	r.metrics.archives.Set(float64(left))
	hashes := make([]compute.Hash, len(rows))
	for i, row := range rows {
		hashes[i] = row.Blob
	}
	b := r.fetchAll(ctx, hashes, r.blobs.Fetch, func() {
		left--
		r.metrics.archives.Set(float64(left))
	})
	if left > 0 && ctx.Err() == nil {
		at := slices.IndexFunc(rows, func(row *archive.Record) bool { return row.Blob == b.first })
		r.logger.Error("archives missing on this server", "count", left,
			"err", archives.Unreadable(rows[max(at, 0)], b.err))
	}
	return b.refused
}

// fetchBundles fetches this server's share of the bundles if the share may have
// changed, this disk has space again, or bundlePeriod has passed. It returns how many bundles it could not
// fetch although some server may have them, and one of those. While servers are
// about to leave, it fetches only bundles that they may have. It takes the place of those
// of full, for the bundles that they lack.
func (r *Repairer) fetchBundles(
	ctx context.Context, without absent, full []compute.NodeID,
) (refused int, one compute.Hash) {
	view, now := r.view(), r.now()
	servers, down := present(view)
	leaving := len(without.leavers) > 0
	if !leaving && r.last.holds(servers, full, r.showFull(), now) {
		return r.last.refused, r.last.one
	}
	fetching, end := context.WithCancel(ctx)
	defer end()
	from := func(ctx context.Context, hash compute.Hash) error {
		err := r.throttled(ctx, hash)
		if r.overtaken(servers) {
			end()
		}
		return err
	}
	if leaving {
		from = r.fetchFrom(view, without.leavers)
	}
	live, unread := r.trees.Live(ctx, view.Trees())
	missing, err := r.objects.Live(ctx, view, live)
	needed := func(yield func(compute.Hash) bool) {
		for hash := range view.Bundles() {
			if !yield(hash) {
				return
			}
		}
		maps.Keys(live)(yield)
	}
	gone := slices.Concat(without.leavers, without.silent, down)
	lacks := r.blobs.Lacking(ctx, needed, gone, full)
	b := r.fetchAll(fetching, lacks, from, func() {})
	r.besideFull(ctx, &b, gone, full)
	b.addUnread(unread)
	b.addMissing(missing, err)
	if ctx.Err() != nil {
		return b.refused, b.held
	}
	r.metrics.missing.Set(float64(b.refused + b.lost))
	if b.err != nil {
		r.logger.Error("bundles missing on this server", "count", b.refused+b.lost, "err", b.err)
	}
	short := r.showFull()
	last := share{servers: servers, full: full, short: short, refused: b.refused, one: b.held, next: now.Add(bundlePeriod)}
	if short && b.refused > 0 {
		last.next = now.Add(fullPeriod)
	}
	done := b.refused == 0 || short || len(down) > 0 // The down servers' own blobs come when they return.
	if done && !leaving && fetching.Err() == nil {
		r.last = last
	}
	return b.refused, b.held
}

// holds reports whether the share is still the same.
func (s share) holds(servers, full []compute.NodeID, short bool, now time.Time) bool {
	return slices.Equal(servers, s.servers) && slices.Equal(full, s.full) && short == s.short && now.Before(s.next)
}

// showFull returns whether this disk is full, and has the metric say it.
func (r *Repairer) showFull() bool {
	full := r.blobs.Full()
	r.metrics.full.Set(0)
	if full {
		r.metrics.full.Set(1)
	}
	return full
}

// besideFull counts, where this disk was full, only the blobs that the other servers have too
// few copies of: those of which they have enough are not this server's to fetch.
func (r *Repairer) besideFull(ctx context.Context, b *fetched, without, full []compute.NodeID) {
	if compute.CodeOf(b.err) != compute.CodeNoSpace {
		r.metrics.unplaced.Set(0)
		return
	}
	copies := r.blobs.Copies(ctx, b.left, without)
	if ctx.Err() != nil {
		return
	}
	short := slices.DeleteFunc(b.left, func(hash compute.Hash) bool { return copies[hash] >= r.blobs.Replicas() })
	r.metrics.unplaced.Set(float64(len(short)))
	b.refused, b.held = len(short), compute.Hash{}
	switch {
	case len(short) == 0 && b.lost == 0:
		b.err = nil
	case len(short) == 0:
		b.err = errors.New("no server has them")
	case r.blobs.Staying(slices.Concat(without, full)) < r.blobs.Replicas():
		b.held = short[0]
		b.err = fmt.Errorf("no server has space for %d copies: %w", len(short), b.err)
	default:
		b.held = short[0]
		b.err = fmt.Errorf("other servers take %d copies: %w", len(short), b.err)
	}
}

// overtaken reports whether a scan for these servers should end for a newer one: others are
// there now, or somebody waits for a scan. At repairRate the share of a server may take hours.
func (r *Repairer) overtaken(servers []compute.NodeID) bool {
	now, _ := present(r.view())
	return len(r.wake) > 0 || !slices.Equal(now, servers)
}

// throttled fetches a blob, at repairRate.
func (r *Repairer) throttled(ctx context.Context, hash compute.Hash) error {
	if err := r.blobs.Fetch(ctx, hash); err != nil {
		return err
	}
	return r.limit.WaitN(ctx, min(r.blobs.Size(hash), r.limit.Burst()))
}

// Trim removes copies of used blobs from this disk that were put longer ago than minAge,
// and that the placement has no use for once their owners have theirs: after a server has
// joined or returned, or got space again. It removes none while a server is about to leave.
func (r *Repairer) Trim(
	ctx context.Context, used iter.Seq[compute.Hash], minAge time.Duration,
) (removed int, err error) {
	for some := range slices.Chunk(r.blobs.Surplus(used), trimBatch) {
		n, err := r.trimSome(ctx, some, minAge)
		removed += n
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

func (r *Repairer) trimSome(ctx context.Context, some []compute.Hash, minAge time.Duration) (removed int, err error) {
	if !r.scanning.TryLock() {
		return 0, nil // The next sweep trims: this one has other work that must not wait for a scan.
	}
	defer r.scanning.Unlock()
	now := r.now()
	r.mu.Lock()
	leaving := false
	for _, until := range r.leavers {
		leaving = leaving || !now.After(until)
	}
	r.mu.Unlock()
	if leaving {
		return 0, nil
	}
	return r.blobs.Trim(ctx, some, minAge)
}

// fetchFrom returns a function that fetches a blob from one of leavers. If none
// of them has the blob, that is no error: the blob is not lost with them. If
// one does not answer, the blob has to be fetched from any server.
func (r *Repairer) fetchFrom(view *fsm.View, leavers []compute.NodeID) func(context.Context, compute.Hash) error {
	var unreachable []compute.NodeID // None of them is waited for twice.
	for _, id := range leavers {
		if known, ok := view.Node(id); ok && known.State != compute.NodeUp {
			unreachable = append(unreachable, id)
		}
	}
	return func(ctx context.Context, hash compute.Hash) error {
		for _, id := range leavers {
			if slices.Contains(unreachable, id) {
				continue
			}
			err := r.blobs.FetchFrom(ctx, id, hash)
			if err == nil || compute.CodeOf(err) == compute.CodeNoSpace {
				return err
			}
			if compute.CodeOf(err) != compute.CodeNotFound {
				unreachable = append(unreachable, id)
			}
		}
		if len(unreachable) == 0 {
			return nil
		}
		return r.blobs.Fetch(ctx, hash)
	}
}

// serversOf returns the servers of a state, in the order of their identifiers.
func serversOf(view *fsm.View) (ids []compute.NodeID) {
	for n := range view.Nodes() {
		if n.Role == compute.RoleServer {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// present returns the servers of a state, and separately those that have been
// down for downPeriod.
func present(view *fsm.View) (servers, down []compute.NodeID) {
	for _, id := range serversOf(view) {
		n, _ := view.Node(id)
		if n.State == compute.NodeDown && view.Now().Sub(n.ChangedAt) >= downPeriod {
			down = append(down, id)
			continue
		}
		servers = append(servers, id)
	}
	return servers, down
}
