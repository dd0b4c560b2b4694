package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/cluster/datadir"
	"berth/cluster/rpc"
	"berth/compute"
)

// A cluster that was restored from a backup, or went on without a quorum, lives
// in another epoch. Servers tell theirs when they connect, and those of
// different epochs do not speak: what a server of the life before still holds
// must not come into this one. A server that finds itself left behind sets its
// replica aside and comes in empty, unless the life that it is in goes on: which
// of two clusters is to end is for people to decide.

const (
	epochPrefix     = "epoch-"         // Of the server name in the handshake; none in epoch 0.
	askEpochTimeout = 1 * time.Second  // To ask the others which life they are in.
	leaderlessFor   = 10 * time.Second // Without a leader for so long, the life before is over.
)

// elsewhereError is how a server of another epoch, which it is, is refused.
type epochError uint64

func (e epochError) Error() string {
	return fmt.Sprintf("the other side is in epoch %d of the cluster: its state was restored or recovered since",
		uint64(e))
}

// epochs is what a server knows of other epochs.
type epochs struct {
	mu      sync.Mutex
	told    map[compute.NodeID]uint64 // What was logged.
	orphan  time.Time                 // Since when no leader was known, as far as was looked.
	outlive chan uint64               // Of size one: the epoch that this server has to come into.
}

// Epoch returns which life of the cluster this node is in.
func (c *Cluster) Epoch() uint64 { return c.dir.Record().Epoch }

func epochName(epoch uint64) string {
	if epoch == 0 {
		return ""
	}
	return epochPrefix + strconv.FormatUint(epoch, 10)
}

// epochOf returns the epoch that the dialling side said to be in.
func epochOf(state tls.ConnectionState) uint64 {
	text, found := strings.CutPrefix(state.ServerName, epochPrefix)
	epoch, err := strconv.ParseUint(text, 10, 64)
	if !found || err != nil {
		return 0
	}
	return epoch
}

// epochGuard keeps servers of different epochs apart.
type epochGuard struct{ *Cluster }

// otherLife reports whether a server that connects is in another epoch.
func (c epochGuard) inOtherEpoch(peer rpc.Peer, state tls.ConnectionState) bool {
	if c.isWorker() || peer.Anonymous() || peer.Role != compute.RoleServer {
		return false
	}
	epoch := epochOf(state)
	if epoch == c.Epoch() {
		return false
	}
	c.noteEpoch(peer.ID, epoch)
	return true
}

// hearOf notes that a server is in another epoch. When that is a later one and
// this server has had no leader for long, it ends, to come in at its next start.
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
		c.logger.Error("a server is in another epoch of the cluster; stop those that are not to go on, and start them again",
			"node", from, "err", fmt.Sprintf("it is in epoch %d, this one in %d", epoch, own))
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

// ErrOutlived is what Run returns on a server that the cluster went on without:
// started again it sets its replica aside and comes in empty.
var ErrOutlived = errors.New("the cluster was restored or recovered meanwhile: " +
	"start this server again, and it comes in empty")

// watchLife ends Run once this server was left behind.
func (c epochGuard) awaitOutlived(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.epochs.outlive:
		return ErrOutlived
	}
}

// leaveOldLife asks the other servers which epoch they are in, before this one
// takes part. When one is in a later epoch, and those that are in this one are
// too few to go on, the replica is set aside.
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
	c.logger.Warn("replica set aside: the cluster was restored or recovered since, and this server comes in empty",
		"err", fmt.Sprintf("it was of epoch %d, the cluster is in %d; it is in %s", record.Epoch, newest, aside))
	return freshReplica, c.dir.Update(func(r *datadir.Record) { r.Epoch, r.Damaged, r.CatchUp = newest, "", 0 })
}

// askEpochs returns the newest epoch that a server is in, and how many, this
// one counted, are in its own.
func (c epochGuard) askEpochs(ctx context.Context, peers []datadir.Peer) (newest uint64, same int) {
	ctx, cancel := context.WithTimeout(ctx, askEpochTimeout)
	defer cancel()
	own := c.Epoch()
	answers := make(chan error, len(peers)) // Room for all, so that none blocks.
	for _, p := range peers {
		go func() {
			conn, err := c.port.dial(ctx, p.ID, protoRPC)
			if err == nil {
				err = conn.Close()
			}
			answers <- err
		}()
	}
	newest, same = own, 1
	for range peers {
		err := <-answers
		if e, ok := errors.AsType[epochError](err); ok {
			newest = max(newest, uint64(e))
		} else if err == nil {
			same++
		}
	}
	return newest, same
}
