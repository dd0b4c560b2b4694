package replication

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/fsm"
	"berth/loop"
	"berth/node/archives"
	"berth/node/storage"
)

// Times and limits of repairs.
const (
	repairPeriod = 30 * time.Second // How often a server checks for missing blobs,
	bundlePeriod = 10 * time.Minute // and for missing code, though no server came or went.
	fetchTimeout = 2 * time.Minute  // To bring one blob from another server.
	maxFailed    = 16               // Blobs of one scan that no server gives now. Each may take a while.
	leavePeriod  = 2 * time.Minute  // Longer than a removal takes from what it asks to its entry.
	downPeriod   = 10 * time.Minute // How long a server is down whose copies of code count no longer. It may come back.
)

// Missing is what a server is to have and has not. What no server has does not
// count: to wait for it is no use.
type Missing struct {
	Archives int          `cbor:"1,keyasint"`
	Bundles  int          `cbor:"2,keyasint"`
	Scanned  bool         `cbor:"3,keyasint"` // At all that it is to have, not before it was asked.
	First    compute.Hash `cbor:"4,keyasint"` // One of the bundles.
}

// None reports whether the server has what it is to have.
func (m Missing) None() bool { return m.Scanned && m.Archives+m.Bundles == 0 }

// String returns what a server lacks as the end of a sentence about it.
func (m Missing) String() string {
	what := fmt.Sprintf("%d archives of old executions and %d bundles of code", m.Archives, m.Bundles)
	if m.Bundles > 0 && m.First != (compute.Hash{}) {
		what += " (such as blob " + storage.Name(m.First) + ")"
	}
	switch {
	case m.Scanned:
		return "lacks " + what
	case m.Archives+m.Bundles == 0:
		return "still looks whether it lacks something"
	}
	return "still looks, and lacked " + what
}

// Repairer brings the blobs that this server is to have: those of all archives,
// and its share of the bundles, which is another one whenever a server joins or
// leaves, or is to leave, or is down for long, or comes back.
type Repairer struct {
	view   func() *fsm.View
	blobs  *storage.Blobs
	now    func() time.Time
	logger *slog.Logger
	gauge  prometheus.Gauge
	wake   chan struct{} // A signal, of size one: somebody waits for a scan.

	// Owned by the repair goroutine.
	settled []compute.NodeID // The servers beside which this one has its share,
	at      time.Time        // as it found then.

	mu      sync.Mutex
	begun   uint64        // Scans,
	ended   uint64        // and the last one that was complete.
	changed chan struct{} // Closed at its end.
	lacks   Missing
	leavers map[compute.NodeID]time.Time // Servers that may be removed any moment, until when that is believed.
	silent  []compute.NodeID             // They do not answer the callers that wait for the next scan.
}

// absent are the servers whose copies a scan does not count.
type absent struct {
	leavers []compute.NodeID // What they have is brought before they go.
	silent  []compute.NodeID
}

// NewRepairer returns the repairer of a server.
func NewRepairer(
	view func() *fsm.View, blobs *storage.Blobs, now func() time.Time, logger *slog.Logger, reg prometheus.Registerer,
) *Repairer {
	r := &Repairer{
		view: view, blobs: blobs, now: now, logger: logger,
		wake: make(chan struct{}, 1), changed: make(chan struct{}), leavers: make(map[compute.NodeID]time.Time),
		gauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_archives_missing",
			Help: "Archives of old executions whose blob this server lacks, or cannot read, as far as it knows.",
		}),
	}
	reg.MustRegister(r.gauge)
	return r
}

// Run brings missing blobs until ctx ends.
func (r *Repairer) Run(ctx context.Context) {
	loop.OnChange(ctx, repairPeriod, func() <-chan struct{} { return r.wake }, func() { r.scan(ctx) })
}

// scan brings what this server lacks, and says what it goes on Missing.
func (r *Repairer) scan(ctx context.Context) {
	number, without := r.begin()
	l := Missing{Scanned: true}
	l.Archives = r.bringArchives(ctx)
	l.Bundles, l.First = r.bringBundles(ctx, without)
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.lacks = number, l
	close(r.changed)
	r.changed = make(chan struct{})
}

// begin begins a scan. It returns its number and the servers whose copies it must
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

// Wait waits for a scan that counts no copies of leaver and of silent servers, and
// returns what this server is missing then. When ctx ends earlier it returns the
// result of the scan before. Repairs go on afterwards, and for a while no copy of
// leaver counts: a server that is removed next must not have the only copies of
// what leaver had.
func (r *Repairer) Wait(ctx context.Context, leaver compute.NodeID, silent []compute.NodeID) Missing {
	r.mu.Lock()
	number := r.begun + 1 // One that has begun may have missed what is asked for.
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

// bringArchives brings the blobs of archives, and returns how many of them it
// could not bring and some server may have.
func (r *Repairer) bringArchives(ctx context.Context) int {
	var rows []*fsm.Archive
	for row := range r.view().Archives() {
		if !r.blobs.Has(row.Blob) {
			rows = append(rows, row)
		}
	}
	left := len(rows)
	r.gauge.Set(float64(left))
	hashes := make([]compute.Hash, len(rows))
	for i, row := range rows {
		hashes[i] = row.Blob
	}
	b := r.bring(ctx, hashes, r.blobs.Keep, func() {
		left--
		r.gauge.Set(float64(left))
	})
	if left > 0 && ctx.Err() == nil {
		at := slices.IndexFunc(rows, func(row *fsm.Archive) bool { return row.Blob == b.first })
		r.logger.Error("archives missing on this server",
			"err", fmt.Errorf("%d of them: %w", left, archives.Unreadable(rows[max(at, 0)], b.err)))
	}
	return b.refused
}

// bringBundles brings this server's share of the bundles when that may be another
// one than it was, or if it has not looked for long, and returns how many of them
// it could not bring and some server may have, and one of those. While servers
// are to leave that is only what they may have.
func (r *Repairer) bringBundles(ctx context.Context, without absent) (refused int, one compute.Hash) {
	view, now := r.view(), r.now()
	servers, down := present(view)
	leaving := len(without.leavers) > 0
	if !leaving && slices.Equal(servers, r.settled) && now.Sub(r.at) < bundlePeriod {
		return 0, compute.Hash{}
	}
	from := r.blobs.Keep
	if leaving {
		from = r.keepFrom(view, without.leavers)
	}
	lacks := r.blobs.Lacking(view.Bundles(), slices.Concat(without.leavers, without.silent, down))
	b := r.bring(ctx, lacks, from, func() {})
	if ctx.Err() != nil {
		return b.refused, b.held
	}
	if b.err != nil {
		r.logger.Error("code of executions missing on this server",
			"err", fmt.Errorf("%d blobs: %w", b.refused+b.lost, b.err))
	}
	if (b.refused == 0 || len(down) > 0) && !leaving { // What those have alone comes when they are back.
		r.settled, r.at = servers, now
	}
	return b.refused, b.held
}

// keepFrom returns what brings a blob that one of leavers has. That none of them
// has it is no error: it is not lost with them. When one does not answer, the
// blob has to be had from any server.
func (r *Repairer) keepFrom(view *fsm.View, leavers []compute.NodeID) func(context.Context, compute.Hash) error {
	var mute []compute.NodeID // None is waited for twice.
	for _, id := range leavers {
		if known, ok := view.Node(id); ok && known.State != compute.NodeUp {
			mute = append(mute, id)
		}
	}
	return func(ctx context.Context, hash compute.Hash) error {
		for _, id := range leavers {
			if slices.Contains(mute, id) {
				continue
			}
			err := r.blobs.KeepFrom(ctx, id, hash)
			if err == nil || compute.CodeOf(err) == compute.CodeNoSpace {
				return err
			}
			if compute.CodeOf(err) != compute.CodeNotFound {
				mute = append(mute, id)
			}
		}
		if len(mute) == 0 {
			return nil
		}
		return r.blobs.Keep(ctx, hash)
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

// present returns the servers of a state but those that have been down for long,
// and these.
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

// brought is the result of fetching blobs.
type brought struct {
	lost    int          // No server has them.
	refused int          // They could not be brought now,
	held    compute.Hash // this one first.
	first   compute.Hash
	err     error // Of the first that was lost or refused; a full disk rather than another one.
}

// bring brings blobs by one and calls have for each that is on this disk then. It
// leaves the others for later once the disk is full, where they would be brought
// and thrown away, and once too many cannot be had.
func (r *Repairer) bring(
	ctx context.Context, hashes []compute.Hash, one func(context.Context, compute.Hash) error, have func(),
) (b brought) {
	// Those that cannot be had must not always come first.
	rand.Shuffle(len(hashes), func(i, j int) { hashes[i], hashes[j] = hashes[j], hashes[i] })
	for i, hash := range hashes {
		err := fetch(ctx, hash, one)
		if ctx.Err() != nil {
			b.refused += len(hashes) - i
			return b
		}
		full := compute.CodeOf(err) == compute.CodeNoSpace
		if err != nil && (b.err == nil || full) {
			b.first, b.err = hash, err
		}
		switch {
		case err == nil:
			have()
		case compute.CodeOf(err) == compute.CodeNotFound:
			b.lost++
		default:
			if b.refused == 0 {
				b.held = hash
			}
			b.refused++
		}
		if full || b.refused >= maxFailed {
			b.refused += len(hashes) - i - 1
			return b
		}
	}
	return b
}

// fetch brings one blob.
func fetch(ctx context.Context, hash compute.Hash, one func(context.Context, compute.Hash) error) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	return one(ctx, hash)
}
