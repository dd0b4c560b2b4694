package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"berth/cluster/datadir"
	"berth/cluster/rpc"
	"berth/cluster/transport"
	"berth/compute"
)

// A restore from a backup or a recovery without a quorum begins another epoch of
// the cluster. Servers exchange their epochs when they connect, and servers of
// different epochs do not communicate: entries of an earlier epoch must not reach
// this one. A server of an earlier epoch sets its replica aside and rejoins with an
// empty one, unless its own epoch has a quorum: an operator decides which of two
// clusters ends.

const (
	askEpochTimeout = 1 * time.Second  // To ask the other servers for their epochs.
	leaderlessFor   = 10 * time.Second // Without a leader for this long, this epoch has ended.
)

// epochs has a server's knowledge of other epochs.
type epochs struct {
	mu      sync.Mutex
	told    map[compute.NodeID]uint64 // Logged epochs.
	orphan  time.Time                 // Since when no leader is known.
	outlive chan uint64               // Buffered for one: the epoch that this server must enter.
}

// Epoch returns the epoch of the cluster that this node is in.
func (c *Cluster) Epoch() uint64 { return c.dir.Record().Epoch }

// epochGuard keeps servers of different epochs apart.
type epochGuard struct{ *Cluster }

// inOtherEpoch reports whether a server that connects is in another epoch.
func (c epochGuard) inOtherEpoch(peer rpc.Peer, state tls.ConnectionState) bool {
	if c.isWorker() || peer.Anonymous() || peer.Role != compute.RoleServer {
		return false
	}
	epoch := transport.EpochOf(state)
	if epoch == c.Epoch() {
		return false
	}
	c.noteEpoch(peer.ID, epoch)
	return true
}

// noteEpoch records that a server is in another epoch. When that is a later one and
// this server has had no leader for long, this server ends, to rejoin at its next
// start.
func (c epochGuard) noteEpoch(from compute.NodeID, epoch uint64) {
	own := c.Epoch()
	if epoch == own || c.isWorker() {
		return
	}
	_, led := c.Leader()
	now := time.Now() //nolint:forbidigo // A stopwatch.
	c.epochs.mu.Lock()
	defer c.epochs.mu.Unlock()
	if c.epochs.told[from] != epoch {
		if c.epochs.told == nil {
			c.epochs.told = make(map[compute.NodeID]uint64)
		}
		c.epochs.told[from] = epoch
		c.logger.Error("server in another epoch", "node", from, "epoch", epoch, "own_epoch", own,
			"hint", "stop the servers that are not to go on, and start them again")
	}
	switch {
	case led:
		c.epochs.orphan = time.Time{}
	case c.epochs.orphan.IsZero():
		c.epochs.orphan = now
	case epoch > own && now.Sub(c.epochs.orphan) > leaderlessFor:
		select {
		case c.epochs.outlive <- epoch:
		default:
		}
	}
}

// ErrOutlived is returned by Run on a server of an earlier epoch: at its next start
// it sets its replica aside and rejoins with an empty one.
var ErrOutlived = errors.New("the cluster was restored or recovered meanwhile: " +
	"start this server again, and it rejoins with an empty replica")

// awaitOutlived ends Run once the cluster is in a later epoch.
func (c epochGuard) awaitOutlived(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.epochs.outlive:
		return ErrOutlived
	}
}

// leaveOldEpoch asks the other servers for their epochs before this one takes part.
// It sets the replica aside when one is in a later epoch and those in this epoch
// are not a quorum.
func (c epochGuard) leaveOldEpoch(ctx context.Context, fresh freshness) (freshness, error) {
	record := c.dir.Record()
	if fresh != freshNone || len(record.Peers) == 0 {
		return fresh, nil
	}
	newest, same := c.askEpochs(ctx, record.Peers)
	if newest <= record.Epoch || same > (len(record.Peers)+1)/2 {
		return fresh, nil
	}
	aside, err := c.replica.Quarantine.SetAside(c.cfg.Now(), nil)
	if err != nil {
		return fresh, err
	}
	c.logger.Warn("replica of an earlier epoch set aside, rejoining with an empty one",
		"own_epoch", record.Epoch, "epoch", newest, "path", aside)
	return freshReplica, c.dir.Update(func(r *datadir.Record) { r.Epoch, r.Damaged, r.CatchUp = newest, "", 0 })
}

// askEpochs returns the newest epoch of the servers, and how many servers,
// including this one, are in its own.
func (c epochGuard) askEpochs(ctx context.Context, peers []datadir.Peer) (newest uint64, same int) {
	ctx, cancel := context.WithTimeout(ctx, askEpochTimeout)
	defer cancel()
	own := c.Epoch()
	answers := make(chan error, len(peers)) // Buffered for all, so that none blocks.
	for _, p := range peers {
		go func() {
			conn, err := c.port.dial(ctx, p.ID, transport.ProtoRPC)
			if err == nil {
				err = conn.Close()
			}
			answers <- err
		}()
	}
	newest, same = own, 1
	for range peers {
		err := <-answers
		if e, ok := errors.AsType[transport.EpochError](err); ok {
			newest = max(newest, uint64(e))
		} else if err == nil {
			same++
		}
	}
	return newest, same
}
