package node

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/loop"
	"berth/node/objects"
	"berth/node/objects/remote"
)

// Times of the sweep of an object store, as of disks.
const (
	remoteSweep  = time.Hour
	remoteMinAge = time.Hour
	listTime     = 10 * time.Minute
)

// remotePurpose names the mark by which an object store belongs to this cluster.
const remotePurpose = "object store v1"

// remotePart is where the chunks of objects are kept, beside disks of servers.
type remotePart struct {
	to    *remote.Store // New ones; nil for the disks of servers.
	from  *remote.Store // Others are there; nil for none.
	mover *objects.Mover
	asked chan *fsm.View // To move what this state needs.
}

// openRemote opens the object stores that the configuration names, and returns the
// places of chunks.
func (n *Node) openRemote(ctx context.Context) (objects.Tiers, error) {
	open := func(key, url string) (*remote.Store, error) {
		if url == "" {
			return nil, nil
		}
		mark := hex.EncodeToString(n.master.Derive(remotePurpose, derivedKeyBytes))
		s, err := remote.Open(ctx, url, mark, n.opts.Now)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		n.onClose(s.Close)
		return s, nil
	}
	var err error
	if n.remote.to, err = open("storage.objects", n.cfg.Storage.Objects); err != nil {
		return nil, err
	}
	if n.remote.from, err = open("storage.objects_from", n.cfg.Storage.ObjectsFrom); err != nil {
		return nil, err
	}
	var places objects.Tiers
	if n.remote.to != nil {
		places = append(places, n.remote.to)
	}
	places = append(places, n.blobs)
	if n.remote.from != nil {
		places = append(places, n.remote.from)
	}
	return places, nil
}

// openMover makes what copies chunks to where new ones are kept.
func (n *Node) openMover(places objects.Tiers) {
	n.remote.asked = make(chan *fsm.View, 1)
	n.remote.mover = &objects.Mover{
		Live: n.objects.Live, To: places[0], From: places,
		Known: func(ctx context.Context) (map[compute.Hash]bool, error) {
			if n.remote.to == nil {
				return nil, nil // Copies on disks may lack on some server: each is put again.
			}
			return n.remote.to.All(ctx)
		},
	}
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

// sweepRemote removes what no object needs from the object store, while this node leads.
func (n *Node) sweepRemote(ctx context.Context) error {
	for n.remote.to != nil && loop.Sleep(ctx, remoteSweep) {
		if !n.cluster.IsLeader() {
			continue
		}
		moved, deleted, err := n.sweepRemoteOnce(ctx, remoteMinAge)
		if err != nil {
			n.logger.Warn("object store not swept", "part", "objects", "err", err)
			continue
		}
		n.logger.Debug("object store swept", "part", "objects", "count", moved+deleted)
	}
	return nil
}

func (n *Node) sweepRemoteOnce(ctx context.Context, minAge time.Duration) (moved, deleted int, err error) {
	view, err := n.reader().Read(ctx)
	if err != nil {
		return 0, 0, err
	}
	live := make(map[compute.Hash]bool)
	if _, err := n.objects.Live(ctx, view, live); err != nil {
		return 0, 0, err
	}
	return n.remote.to.Sweep(ctx, func(h compute.Hash) bool { return live[h] }, minAge)
}

// moveObjects copies chunks when that is asked for.
func (n *Node) moveObjects(ctx context.Context) error {
	for {
		select {
		case view := <-n.remote.asked:
			n.remote.mover.Run(ctx, view)
		case <-ctx.Done():
			return nil
		}
	}
}

// migrate copies the chunks of all objects to where new ones are kept, if start says so
// and that is not being done, and returns how far it is.
func (n *Node) migrate(ctx context.Context, start bool) (wire.StorageMigration, error) {
	if start && n.remote.mover.Begin() {
		view, err := n.reader().Read(ctx)
		if err != nil {
			view = n.machine.View()
		}
		n.remote.asked <- view // It is empty: the last one has ended.
	}
	s := n.remote.mover.State()
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
		text := compute.MessageOf(s.Err)
		out.Error = &text
	}
	return out, nil
}
