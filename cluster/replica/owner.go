package replica

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"berth/cluster/disk"
	"berth/compute"
)

// A data directory may hold a replica of another cluster or node when people
// have copied directories. A log names its owner and a snapshot holds a state
// that names its cluster; both are checked before Raft runs.

// ownerSize is the length of an owner's name: a cluster and a node of it.
const ownerSize = 2 * len(compute.UUID{})

// ownerOf names the owner of a log.
func ownerOf(cluster compute.UUID, node compute.NodeID) []byte {
	return append(append(make([]byte, 0, ownerSize), cluster[:]...), node.UUID[:]...)
}

// checkCluster refuses the log of another cluster before its content is checked:
// a foreign log must not be reported as damaged.
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

// checkOwner refuses a log that belongs to another node. A log without a name is
// new, or of an older version.
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
		// It lacks this node's acknowledgements and votes.
		return fmt.Errorf("%w: %s is the replica of node %s, not of this node, %s", disk.ErrCorrupt, dir, of, node)
	}
	return nil
}

// takeOver makes a replica this node's once its owner was checked: it names the
// owner in a log that has none, and drops the entries that a snapshot
// superseded. Newest is the snapshot from which Raft starts, nil for none.
func takeOver(log *disk.Log, newest *raft.SnapshotMeta, cluster compute.UUID, node compute.NodeID) error {
	owner, err := log.Owner()
	if err == nil && len(owner) != ownerSize {
		err = log.SetOwner(ownerOf(cluster, node))
	}
	if err != nil && !disk.NoSpace(err) { // Without free space the next start does it.
		return err
	}
	if err := log.DropSuperseded(); err != nil || newest == nil {
		return err
	}
	return dropOverruled(log, newest)
}

// dropOverruled empties a log that conflicts with the last entry of a snapshot.
// The snapshot came from the leader, and the process ended before the log was
// cleared; nothing from there on was committed. Raft would continue behind the
// snapshot, and as a leader send the conflicting entries before it to others.
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
// may be the only copy of that state.
func errForeignReplica(dir string, of, own compute.UUID) error {
	return compute.Errorf(compute.CodeConflict,
		"%s holds a replica of cluster %s, this node is of cluster %s: put back the directory that was there, or move this "+
			"one away and start the node again. Without a replica it asks the other servers for the state.",
		dir, of, own).Named("foreign_replica")
}

// checkStateOf refuses a state, restored from a replica in dir, that belongs to
// another cluster. It accepts any state when stateCluster is nil.
func checkStateOf(stateCluster func() compute.UUID, dir string, cluster compute.UUID) error {
	if stateCluster == nil {
		return nil
	}
	if of := stateCluster(); !of.IsZero() && of != cluster {
		return errForeignReplica(dir, of, cluster)
	}
	return nil
}
