package node

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/loop"
	"berth/node/mirror"
	"berth/node/objects"
	"berth/node/objects/remote"
	"berth/node/replication"
	"berth/node/storage"
)

// Times of the sweep of an object store, as of disks.
const (
	remoteSweep  = time.Hour
	remoteMinAge = time.Hour
	listTime     = 10 * time.Minute
)

// remotePurpose names the mark by which an object store belongs to this cluster, and
// mirrorPurpose the key of the copies there.
const (
	remotePurpose = "object store v1"
	mirrorPurpose = "object store mirror v1"
)

// remotePart is where the chunks of objects are kept, and copies of other blobs, beside
// the disks of servers.
type remotePart struct {
	node  *Node
	to    *remote.Store // New ones; nil for the disks of servers.
	from  *remote.Store // Others are there; nil for none.
	mover *objects.Mover
	asked chan struct{} // To move what objects need.

	mirror *mirror.Mirror // Has copies of other blobs; nil without an object store.
}

// open opens the object stores that the configuration names, and returns the
// places of chunks.
func (r *remotePart) open(ctx context.Context) (objects.Tiers, error) {
	open := func(key, url string) (*remote.Store, error) {
		if url == "" {
			return nil, nil
		}
		mark := hex.EncodeToString(r.node.master.Derive(remotePurpose, derivedKeyBytes))
		s, err := remote.Open(ctx, url, mark, r.node.opts.Now)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		r.node.onClose(s.Close)
		return s, nil
	}
	var err error
	if r.to, err = open("storage.objects", r.node.cfg.Storage.Objects); err != nil {
		return nil, err
	}
	if r.from, err = open("storage.objects_from", r.node.cfg.Storage.ObjectsFrom); err != nil {
		return nil, err
	}
	var places objects.Tiers
	if r.to != nil {
		places = append(places, r.to)
	}
	places = append(places, diskBlobs{r.node.blobs})
	if r.from != nil {
		places = append(places, r.from)
	}
	return places, r.openMirror()
}

// openMirror opens the mirror of other blobs in the object stores, if there are any.
func (r *remotePart) openMirror() error {
	if r.to == nil && r.from == nil {
		return nil
	}
	n := r.node
	key, err := n.master.CopyKey(mirrorPurpose)
	if err != nil {
		return err
	}
	cfg := mirror.Config{
		Key: key, Blob: n.blobs.GetFromNodes, Now: n.opts.Now, Live: n.newestBlobs,
		Logger: n.logger.With("part", "mirror"), Registerer: n.registry,
	}
	if r.to != nil {
		cfg.To = r.to.Copies()
	}
	if r.from != nil {
		cfg.From = append(cfg.From, r.from.Copies())
	}
	r.mirror = mirror.New(cfg)
	return nil
}

// newestBlobs returns the blobs, without those of objects, to which the newest state refers,
// and its index.
func (n *Node) newestBlobs(ctx context.Context) (live map[compute.Hash]bool, index uint64, err error) {
	view, err := n.reader().Read(ctx) // An older state may lack some.
	if err != nil {
		return nil, 0, err
	}
	live, err = replication.Blobs(ctx, view, n.trees)
	return live, view.Index(), err
}

// mirrored returns a blob from its copy in an object store.
func (r *remotePart) mirrored(ctx context.Context, hash compute.Hash) ([]byte, error) {
	if r.mirror == nil {
		return nil, compute.Errorf(compute.CodeNotFound, "There is no object store.")
	}
	return r.mirror.Get(ctx, hash)
}

// copyBlobs copies blobs to the object store while this node leads.
func (r *remotePart) copyBlobs(ctx context.Context) error {
	if r.to == nil {
		return nil
	}
	err := r.node.cluster.WhileLeader(ctx, func(ctx context.Context, _ uint64) error {
		r.mirror.Lead(ctx)
		return nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The end of ctx.
	}
	return err
}

// openMover makes what copies chunks to where new ones are kept.
func (r *remotePart) openMover(places objects.Tiers) {
	r.asked = make(chan struct{}, 1)
	r.mover = &objects.Mover{
		Live: r.node.objects.Live, To: places[0], From: places,
		Read: func(ctx context.Context) (*fsm.View, error) { return r.node.reader().Read(ctx) },
		Known: func(ctx context.Context) (map[compute.Hash]bool, error) {
			if r.to == nil {
				return nil, nil // Copies on disks may lack on some server: each is put again.
			}
			return r.to.All(ctx)
		},
	}
}

// diskBlobs are the blobs of servers, one of the places of chunks. Chunks are not mirrored.
type diskBlobs struct{ *storage.Blobs }

// Get implements objects.Blobs.
func (b diskBlobs) Get(ctx context.Context, hash compute.Hash) ([]byte, error) {
	return b.GetFromNodes(ctx, hash)
}

// diskObjects knows which blobs of objects the disks of servers need: those that the
// object store does not have.
type diskObjects struct{ node *Node }

// Live implements replication.Objects.
func (d diskObjects) Live(ctx context.Context, view *fsm.View, live map[compute.Hash]bool) (int, error) {
	if d.node.remote.to == nil {
		return d.node.objects.Live(ctx, view, live)
	}
	own := make(map[compute.Hash]bool)
	if unread, err := d.node.objects.Live(ctx, view, own); err != nil {
		return unread, err
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	away, err := d.node.remote.to.All(ctx)
	if err != nil {
		return 0, err
	}
	for h := range own {
		if !away[h] {
			live[h] = true
		}
	}
	return 0, nil
}

// sweep removes what no object needs from the object store, while this node leads.
func (r *remotePart) sweep(ctx context.Context) error {
	for r.to != nil && loop.Sleep(ctx, remoteSweep) {
		if !r.node.cluster.IsLeader() {
			continue
		}
		moved, deleted, err := r.sweepOnce(ctx, remoteMinAge)
		if err != nil {
			r.node.logger.Warn("object store not swept", "part", "objects", "err", compute.Detailed(err))
			continue
		}
		r.node.logger.Debug("object store swept", "part", "objects", "count", moved+deleted)
	}
	return nil
}

func (r *remotePart) sweepOnce(ctx context.Context, minAge time.Duration) (moved, deleted int, err error) {
	view, err := r.node.reader().Read(ctx)
	if err != nil {
		return 0, 0, err
	}
	live := make(map[compute.Hash]bool)
	if _, err := r.node.objects.Live(ctx, view, live); err != nil {
		return 0, 0, err
	}
	return r.to.Sweep(ctx, func(h compute.Hash) bool { return live[h] }, minAge)
}

// move copies chunks when that is asked for.
func (r *remotePart) move(ctx context.Context) error {
	for {
		select {
		case <-r.asked:
			r.mover.Run(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// migrate copies the chunks of all objects to where new ones are kept, if start says so
// and that is not being done, and returns how far it is.
func (r *remotePart) migrate(_ context.Context, start bool) (wire.StorageMigration, error) {
	if start && r.mover.Begin() {
		r.asked <- struct{}{} // It is empty: the last one has ended.
	}
	s := r.mover.State()
	out := wire.StorageMigration{Blobs: s.Blobs, Done: s.Done, Failed: s.Failed, Bytes: s.Bytes}
	switch {
	case !s.Started:
		out.Status = "none"
	case !s.Ended:
		out.Status = "running"
	case s.Err != nil:
		out.Status = "failed"
	default:
		out.Status = "done"
	}
	if s.Err != nil {
		text := strings.TrimPrefix(compute.Detailed(s.Err).Error(), string(compute.CodeOf(s.Err))+": ") // For operators.
		out.Error = &text
	}
	return out, nil
}
