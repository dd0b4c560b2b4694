package node

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/fsm"
	"berth/node/storage"
)

// Times and limits of what a server brings from others.
const (
	keepPeriod   = 30 * time.Second // How often a server looks whether it lacks something.
	bringTimeout = 2 * time.Minute  // To bring one blob from another server.
	maxRefused   = 16               // Blobs of one look that no server gives now, each of which may take a while.
)

// lacking is what a server is to have and has not. What no server has does not
// count: to wait for it is no use.
type lacking struct {
	Archives int  `cbor:"1,keyasint"`
	Bundles  int  `cbor:"2,keyasint"`
	Looked   bool `cbor:"3,keyasint"` // At all that it is to have, not before it was asked.
}

// nothing reports whether the server has what it is to have.
func (l lacking) nothing() bool { return l == lacking{Looked: true} }

// keeper brings the blobs that this server is to have: those of all archives,
// and its share of the bundles, which is another one whenever a server joins or
// leaves.
type keeper struct {
	view    func() *fsm.View
	blobs   *storage.Blobs
	logger  *slog.Logger
	missing prometheus.Gauge
	wake    chan struct{}    // Of size one, a signal: somebody waits for a look.
	settled []compute.NodeID // The servers of which this one has its share; of the goroutine that looks.

	mu      sync.Mutex
	begun   uint64        // Looks,
	ended   uint64        // and the last one that was to its end.
	changed chan struct{} // Closed at its end.
	lacks   lacking
}

// newKeeper returns the keeper of a server.
func newKeeper(n *Node) *keeper {
	k := &keeper{
		view: n.machine.View, blobs: n.blobs, logger: n.logger, wake: make(chan struct{}, 1), changed: make(chan struct{}),
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
	every(ctx, keepPeriod, func() <-chan struct{} { return n.keeper.wake }, func() { n.keeper.look(ctx) })
	return nil
}

// look brings what this server lacks, and says what it goes on lacking.
func (k *keeper) look(ctx context.Context) {
	k.mu.Lock()
	k.begun++
	look := k.begun
	k.mu.Unlock()
	archives, bundles := k.bringArchives(ctx), k.bringBundles(ctx)
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended, k.lacks = look, lacking{Archives: archives, Bundles: bundles}
	close(k.changed)
	k.changed = make(chan struct{})
}

// wait has this server look, and returns what it lacks then; what it lacked
// before when ctx ends too early.
func (k *keeper) wait(ctx context.Context) lacking {
	k.mu.Lock()
	look := k.begun + 1 // One that has begun may have missed what is asked for.
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
	b := k.bring(ctx, hashes, func() {
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
// one than it was, and returns how many of them it could not bring and some server
// may have.
func (k *keeper) bringBundles(ctx context.Context) int {
	view := k.view()
	servers := serversOf(view)
	if slices.Equal(servers, k.settled) {
		return 0
	}
	b := k.bring(ctx, k.blobs.Lacking(view.Bundles()), func() {})
	if ctx.Err() != nil {
		return b.refused
	}
	if b.err != nil {
		k.logger.Error("code of executions is missing on this server",
			"err", fmt.Errorf("%d blobs: %w", b.refused+b.lost, b.err))
	}
	if b.refused == 0 {
		k.settled = servers
	}
	return b.refused
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

// brought is what became of blobs that were to be brought.
type brought struct {
	lost    int // No server has them.
	refused int // They could not be brought now.
	first   compute.Hash
	err     error // Of the first that was lost or refused; a full disk rather than another one.
}

// bring brings blobs and calls have for each that is on this disk then. It leaves
// the others for later once the disk is full, where they would be brought and
// thrown away, and once too many cannot be had.
func (k *keeper) bring(ctx context.Context, hashes []compute.Hash, have func()) (b brought) {
	// Those that cannot be had must not always come first.
	rand.Shuffle(len(hashes), func(i, j int) { hashes[i], hashes[j] = hashes[j], hashes[i] })
	for i, hash := range hashes {
		err := k.bringOne(ctx, hash)
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
			b.refused++
		}
		if full || b.refused >= maxRefused {
			b.refused += len(hashes) - i - 1
			return b
		}
	}
	return b
}

func (k *keeper) bringOne(ctx context.Context, hash compute.Hash) error {
	ctx, cancel := context.WithTimeout(ctx, bringTimeout)
	defer cancel()
	return k.blobs.Keep(ctx, hash)
}
