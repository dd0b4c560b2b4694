package cluster

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"berth/cluster/datadir"
	"berth/cluster/disk"
	"berth/compute"
)

// What a data directory holds may be of another cluster, or of another node, when
// people have copied directories about. A log names its owner, a snapshot holds
// a state that names its cluster, and both are looked at before raft runs.

// ownerSize is the length of what names an owner: a cluster, and a node of it.
const ownerSize = 2 * len(compute.UUID{})

// ownerOf names the owner of a log.
func ownerOf(cluster compute.UUID, node compute.NodeID) []byte {
	return append(append(make([]byte, 0, ownerSize), cluster[:]...), node.UUID[:]...)
}

// checkCluster refuses the log of another cluster before anything about it is
// judged: what looks like damage is only not ours.
func checkCluster(dir string, cluster compute.UUID) error {
	owner, err := disk.OwnerIn(dir)
	if err != nil || len(owner) != ownerSize {
		return nil //nolint:nilerr // It is opened next, and refused as damaged.
	}
	if of := compute.UUID(owner[:len(cluster)]); of != cluster {
		return errForeignReplica(dir, of, cluster)
	}
	return nil
}

// checkOwner refuses a log that is not of this node. One that names nobody is
// of an older version, or new.
func checkOwner(log *disk.Log, dir string, cluster compute.UUID, node compute.NodeID) error {
	owner, err := log.Owner()
	if err != nil || len(owner) != ownerSize {
		return err
	}
	size := len(cluster)
	if of := compute.UUID(owner[:size]); of != cluster {
		return errForeignReplica(dir, of, cluster)
	}
	if of := (compute.NodeID{UUID: compute.UUID(owner[size:])}); of != node {
		// It has forgotten what this node acknowledged, and for whom it voted.
		return fmt.Errorf("%w: %s is the replica of node %s, not of this node, %s", disk.ErrCorrupt, dir, of, node)
	}
	return nil
}

// takeOver makes a replica this node's, once all that says whose it is was looked
// at: its log is given an owner if it has none, and loses what a snapshot
// superseded. Newest is the snapshot with which raft begins, nil for none.
func takeOver(log *disk.Log, newest *raft.SnapshotMeta, cluster compute.UUID, node compute.NodeID) error {
	owner, err := log.Owner()
	if err == nil && len(owner) != ownerSize {
		err = log.SetOwner(ownerOf(cluster, node))
	}
	if err != nil && !disk.NoSpace(err) { // Without room the next start does it.
		return err
	}
	if err := log.DropSuperseded(); err != nil || newest == nil {
		return err
	}
	return dropOverruled(log, newest)
}

// dropOverruled empties a log that has another entry where a snapshot ends. The
// snapshot came from the leader, this process ended before the log was cleared,
// and nothing from there on was committed. Raft would go on behind the snapshot,
// and as a leader send what is before its end to others.
func dropOverruled(log *disk.Log, snapshot *raft.SnapshotMeta) error {
	var end raft.Log
	err := log.GetLog(snapshot.Index, &end)
	if errors.Is(err, raft.ErrLogNotFound) || err == nil && end.Term == snapshot.Term {
		return nil
	}
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	return log.DeleteRange(0, last)
}

// errForeignReplica refuses a replica of another cluster. It is left alone: it
// may be the only copy of somebody's state.
func errForeignReplica(dir string, of, own compute.UUID) error {
	return compute.Errorf(compute.CodeConflict,
		"%s holds a replica of cluster %s, this node is of cluster %s: put back the directory that was there, or move this "+
			"one away and start the node again. Without a replica it asks the other servers for the state.",
		dir, of, own).Named("foreign_replica")
}

// restoreReplica hands the newest snapshot that the state machine takes to it,
// which raft would do at its start, and sets newer ones aside. Claimed is the
// entry at which the newest of all ends. The error is disk.ErrCorrupt when what is
// left makes no start. A snapshot that the state machine refuses for a reason for
// people, as one of a newer version, stops the start, and nothing is set aside.
// It returns the snapshot, nil for none.
func (c *Cluster) restoreReplica(claimed uint64) (*raft.SnapshotMeta, error) {
	list, err := c.snapshots.List()
	if err != nil {
		return nil, err
	}
	var refused []string
	var reason error
	for _, meta := range list {
		// Before it is restored: a state that raft does not go on from must not stay.
		if err := disk.CheckGap(c.store, meta.Index, claimed); err != nil {
			return nil, errors.Join(err, reason)
		}
		err := c.restoreSnapshot(meta.ID)
		if err == nil {
			c.logger.Info("state restored from a snapshot", "index", meta.Index)
			return meta, c.setSnapshotsAside(refused, reason)
		}
		if !disk.Damaged(err) {
			return nil, fmt.Errorf("restore snapshot %s: %w", meta.ID, err)
		}
		c.metrics.damaged.Inc()
		c.logger.Error("snapshot damaged", "index", meta.Index, "err", err)
		refused = append(refused, meta.ID)
		reason = errors.Join(reason, err)
	}
	if err := disk.CheckGap(c.store, 0, claimed); err != nil {
		return nil, errors.Join(err, reason)
	}
	return nil, c.setSnapshotsAside(refused, reason)
}

// setSnapshotsAside moves snapshots, if there are any, out of the way, with the
// reason.
func (c *Cluster) setSnapshotsAside(ids []string, reason error) error {
	if len(ids) == 0 {
		return nil
	}
	dir, err := c.moveAside(ids, reason)
	if err != nil {
		return err
	}
	c.logger.Warn("damaged snapshot set aside", "err", fmt.Sprintf("it is in %s", dir))
	c.pruneDamaged()
	return nil
}

// moveAside moves snapshots to a directory of the quarantine, which it returns,
// while nothing is removed from there.
func (c *Cluster) moveAside(ids []string, reason error) (dir string, err error) {
	c.quarantine.mu.Lock()
	defer c.quarantine.mu.Unlock()
	if dir, err = c.quarantine.asideDir(c.cfg.Now(), reason); err != nil {
		return "", err
	}
	for _, id := range ids {
		if err := c.snapshots.SetAside(id, dir); err != nil {
			return dir, fmt.Errorf("set damaged snapshot aside: %w", err)
		}
	}
	return dir, nil
}

// restoreSnapshot hands one snapshot to the state machine, which checks what it
// reads. What that does not take is damage, unless it says what people have to
// do, by an error with a code, or the reason passes.
func (c *Cluster) restoreSnapshot(id string) (err error) {
	content, err := c.snapshots.Content(id)
	if err != nil {
		return fmt.Errorf("%w: snapshot %s: %w", disk.ErrCorrupt, id, err)
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: snapshot %s: restoring it: %v", disk.ErrCorrupt, id, v)
		}
	}()
	err = c.cfg.FSM.Restore(content)
	if _, forPeople := errors.AsType[*compute.Error](err); forPeople {
		// A flipped bit may be what makes it look like a newer version's.
		damage := c.snapshots.Check(id)
		if damage == nil {
			return err
		}
		err = damage
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: snapshot %s: %w", disk.ErrCorrupt, id, err)
}

// checkState refuses a state of another cluster, which a snapshot held.
func (c *Cluster) checkState() error {
	return checkStateOf(c.cfg.StateCluster, c.dir.Path(datadir.RaftDir), c.clusterID)
}

// checkStateOf is checkState of a replica in dir, by what tells whose its state
// is, nil for nothing.
func checkStateOf(tell func() compute.UUID, dir string, cluster compute.UUID) error {
	if tell == nil {
		return nil
	}
	if of := tell(); !of.IsZero() && of != cluster {
		return errForeignReplica(dir, of, cluster)
	}
	return nil
}
