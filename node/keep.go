package node

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
	"berth/node/storage"
)

// Times and limits of what a server brings from others.
const (
	keepPeriod   = 30 * time.Second // How often a server looks whether it lacks something,
	bundlePeriod = 10 * time.Minute // and whether it lacks code, though no server came or went.
	bringTimeout = 2 * time.Minute  // To bring one blob from another server.
	maxRefused   = 16               // Blobs of one look that no server gives now, each of which may take a while.
	leavePeriod  = 2 * time.Minute  // Longer than a removal takes from what it asks to its entry.
	downPeriod   = 10 * time.Minute // How long a server is down whose copies of code count no longer. It may come back.
)

// lacking is what a server is to have and has not. What no server has does not
// count: to wait for it is no use.
type lacking struct {
	Archives int          `cbor:"1,keyasint"`
	Bundles  int          `cbor:"2,keyasint"`
	Looked   bool         `cbor:"3,keyasint"` // At all that it is to have, not before it was asked.
	First    compute.Hash `cbor:"4,keyasint"` // One of the bundles.
}

// nothing reports whether the server has what it is to have.
func (l lacking) nothing() bool { return l.Looked && l.Archives+l.Bundles == 0 }

// keeper brings the blobs that this server is to have: those of all archives,
// and its share of the bundles, which is another one whenever a server joins or
// leaves, or is to leave, or is down for long, or comes back.
type keeper struct {
	view    func() *fsm.View
	blobs   *storage.Blobs
	now     func() time.Time
	logger  *slog.Logger
	missing prometheus.Gauge
	wake    chan struct{} // Of size one, a signal: somebody waits for a look.

	// Of the goroutine that looks.
	settled []compute.NodeID // The servers beside which this one has its share,
	at      time.Time        // as it found then.

	mu      sync.Mutex
	begun   uint64        // Looks,
	ended   uint64        // and the last one that was to its end.
	changed chan struct{} // Closed at its end.
	lacks   lacking
	leavers map[compute.NodeID]time.Time // Servers that may be removed any moment, until when that is believed.
	silent  []compute.NodeID             // Those that do not answer whoever waits for the next look.
}

// absent are the servers on whose copies a look does not count.
type absent struct {
	leavers []compute.NodeID // What they have is brought before they go.
	silent  []compute.NodeID
}

// newKeeper returns the keeper of a server.
func newKeeper(n *Node) *keeper {
	k := &keeper{
		view: n.machine.View, blobs: n.blobs, now: n.opts.Now, logger: n.logger,
		wake: make(chan struct{}, 1), changed: make(chan struct{}), leavers: make(map[compute.NodeID]time.Time),
		missing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_archives_missing",
			Help: "Archives of old executions whose blob this server lacks, or cannot read, as far as it knows.",
		}),
	}
	n.registry.MustRegister(k.missing)
	return k
}

// keepBlobs brings, until ctx ends, the blobs that this server is to have.
func (n *Node) keepBlobs(ctx context.Context) error {
	// What the state names is known once it was read from the others.
	if _, err := (reader{n.machine, n.cluster}).Read(ctx); err != nil {
		n.logger.Debug("blobs are looked for later", "err", err)
	}
	loop.OnChange(ctx, keepPeriod, func() <-chan struct{} { return n.keeper.wake }, func() { n.keeper.look(ctx) })
	return nil
}

// look brings what this server lacks, and says what it goes on lacking.
func (k *keeper) look(ctx context.Context) {
	look, without := k.begin()
	l := lacking{Looked: true}
	l.Archives = k.bringArchives(ctx)
	l.Bundles, l.First = k.bringBundles(ctx, without)
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended, k.lacks = look, l
	close(k.changed)
	k.changed = make(chan struct{})
}

// begin begins a look, and returns its number and on whose copies it must not
// count.
func (k *keeper) begin() (look uint64, without absent) {
	servers, now := serversOf(k.view()), k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.begun++
	maps.DeleteFunc(k.leavers, func(id compute.NodeID, until time.Time) bool {
		return now.After(until) || !slices.Contains(servers, id)
	})
	without.leavers, without.silent = slices.Collect(maps.Keys(k.leavers)), k.silent
	k.silent = nil
	return k.begun, without
}

// wait has this server look at all that it is to have once leaver is removed, of
// silent servers nothing, and returns what it lacks then; what it lacked before
// when ctx ends too early. It goes on bringing that, and for a while it counts on
// no copy of leaver: whoever is to be removed next is not the only one who has
// what the first had.
func (k *keeper) wait(ctx context.Context, leaver compute.NodeID, silent []compute.NodeID) lacking {
	k.mu.Lock()
	look := k.begun + 1 // One that has begun may have missed what is asked for.
	k.leavers[leaver] = k.now().Add(leavePeriod)
	k.silent = append(k.silent, silent...)
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
	for {
		k.mu.Lock()
		lacks, changed := k.lacks, k.changed
		lacks.Looked = k.ended >= look
		k.mu.Unlock()
		if lacks.Looked {
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
func (k *keeper) bringArchives(ctx context.Context) int {
	var rows []*fsm.Archive
	for row := range k.view().Archives() {
		if !k.blobs.Has(row.Blob) {
			rows = append(rows, row)
		}
	}
	left := len(rows)
	k.missing.Set(float64(left))
	hashes := make([]compute.Hash, len(rows))
	for i, row := range rows {
		hashes[i] = row.Blob
	}
	b := k.bring(ctx, hashes, k.blobs.Keep, func() {
		left--
		k.missing.Set(float64(left))
	})
	if left > 0 && ctx.Err() == nil {
		at := slices.IndexFunc(rows, func(row *fsm.Archive) bool { return row.Blob == b.first })
		k.logger.Error("archives are missing on this server",
			"err", fmt.Errorf("%d of them: %w", left, unreadableArchive(rows[max(at, 0)], b.err)))
	}
	return b.refused
}

// bringBundles brings this server's share of the bundles when that may be another
// one than it was, or if it has not looked for long, and returns how many of them
// it could not bring and some server may have, and one of those. While servers
// are to leave that is only what they may have.
func (k *keeper) bringBundles(ctx context.Context, without absent) (refused int, one compute.Hash) {
	view, now := k.view(), k.now()
	servers, down := present(view)
	leaving := len(without.leavers) > 0
	if !leaving && slices.Equal(servers, k.settled) && now.Sub(k.at) < bundlePeriod {
		return 0, compute.Hash{}
	}
	from := k.blobs.Keep
	if leaving {
		from = k.keepFrom(view, without.leavers)
	}
	lacks := k.blobs.Lacking(view.Bundles(), slices.Concat(without.leavers, without.silent, down))
	b := k.bring(ctx, lacks, from, func() {})
	if ctx.Err() != nil {
		return b.refused, b.held
	}
	if b.err != nil {
		k.logger.Error("code of executions is missing on this server",
			"err", fmt.Errorf("%d blobs: %w", b.refused+b.lost, b.err))
	}
	if (b.refused == 0 || len(down) > 0) && !leaving { // What those have alone comes when they are back.
		k.settled, k.at = servers, now
	}
	return b.refused, b.held
}

// keepFrom returns what brings a blob that one of leavers has. That none of them
// has it is no error: it is not lost with them. When one does not answer, the
// blob has to be had from any server.
func (k *keeper) keepFrom(view *fsm.View, leavers []compute.NodeID) func(context.Context, compute.Hash) error {
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
			err := k.blobs.KeepFrom(ctx, id, hash)
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
		return k.blobs.Keep(ctx, hash)
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

// brought is what became of blobs that were to be brought.
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
func (k *keeper) bring(
	ctx context.Context, hashes []compute.Hash, one func(context.Context, compute.Hash) error, have func(),
) (b brought) {
	// Those that cannot be had must not always come first.
	rand.Shuffle(len(hashes), func(i, j int) { hashes[i], hashes[j] = hashes[j], hashes[i] })
	for i, hash := range hashes {
		err := inTime(ctx, hash, one)
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
		if full || b.refused >= maxRefused {
			b.refused += len(hashes) - i - 1
			return b
		}
	}
	return b
}

// inTime brings one blob.
func inTime(ctx context.Context, hash compute.Hash, one func(context.Context, compute.Hash) error) error {
	ctx, cancel := context.WithTimeout(ctx, bringTimeout)
	defer cancel()
	return one(ctx, hash)
}
