package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/cluster/file"
	"berth/compute"
)

// Where things are in the data directory.
const (
	nodeFile    = "node.json"
	lockFile    = "lock"
	pkiDir      = "pki"
	keysDir     = "keys"
	keyringFile = "gossip.json"
	raftDir     = "raft"
	dirMode     = 0o700
	fileMode    = 0o600
)

// The standing of a node. Only a member has anything to lose; what the others
// left behind is thrown away and made again.
const (
	standingNew     = ""
	standingJoining = "joining"
	standingMember  = "member"
)

// peerRecord is where a peer was last reached.
type peerRecord struct {
	ID     compute.NodeID `json:"id"`
	RPC    string         `json:"rpc"`
	Gossip string         `json:"gossip"`
}

// nodeRecord is the content of node.json. That it says "member" is what keeps
// a node from ever bootstrapping twice.
type nodeRecord struct {
	NodeID    compute.NodeID `json:"node_id"`
	ClusterID compute.UUID   `json:"cluster_id"`
	Standing  string         `json:"standing"`
	Peers     []peerRecord   `json:"peers,omitempty"`

	// Epoch is in which life of the cluster the node is: servers of different
	// ones do not speak to each other.
	Epoch   uint64 `json:"epoch,omitempty"`
	Pending string `json:"pending,omitempty"` // What was begun on the stopped node and not finished.

	// Damaged says why the replica is not to be used although it can be read,
	// and DivergedAt when that was last found of its state.
	Damaged    string    `json:"damaged,omitempty"`
	DivergedAt time.Time `json:"diverged_at,omitzero"`
	OutUntil   time.Time `json:"out_until,omitzero"` // Until when it stays out, after it was so again.

	// Miscounted is how often the state in memory was found to be wrong since a
	// scrub last found it right.
	Miscounted int `json:"miscounted,omitempty"`

	// CatchUp is the entry that a replica that came in empty has to have before
	// this server may stand for election; 0 when it may.
	CatchUp uint64 `json:"catch_up,omitempty"`

	Sum string `json:"crc32c,omitempty"` // Of the text, see file.WriteSealed.
}

// files is the data directory, held exclusively.
type files struct {
	dir  string
	lock *os.File

	asides sync.Mutex // Held while something is set aside, or what was is removed; never with mu.

	mu     sync.Mutex
	record nodeRecord
}

// openFiles makes the directory if need be, locks it and reads the record.
func openFiles(dir string) (*files, error) {
	for _, d := range []string{dir, filepath.Join(dir, pkiDir), filepath.Join(dir, keysDir), filepath.Join(dir, raftDir)} {
		if err := os.MkdirAll(d, dirMode); err != nil {
			return nil, fmt.Errorf("make data directory: %w", err)
		}
		if err := os.Chmod(d, dirMode); err != nil {
			return nil, fmt.Errorf("protect data directory: %w", err)
		}
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, compute.Errorf(compute.CodeConflict, "Another process uses the data directory %s.", dir)
		}
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	f := &files{dir: dir, lock: lock}
	if err := f.load(); err != nil {
		lock.Close()
		return nil, err
	}
	return f, nil
}

func (f *files) load() error {
	text, err := file.ReadSealed(f.path(nodeFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		if err = json.Unmarshal(text, &f.record); err != nil {
			err = fmt.Errorf("%w: %w", file.ErrDamaged, err)
		}
	}
	if errors.Is(err, file.ErrDamaged) {
		return compute.Errorf(compute.CodeConflict, "%s, which says who this node is, cannot be read: %w. "+
			"Put a copy of it back, or move %s away and have the node join anew.", f.path(nodeFile), err, f.dir)
	}
	if err != nil {
		return fmt.Errorf("read node record: %w", err)
	}
	return nil
}

// get returns the record.
func (f *files) get() nodeRecord {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.record
}

// put writes the record and keeps it.
func (f *files) put(r nodeRecord) error {
	return f.update(func(now *nodeRecord) { *now = r })
}

// update changes the record, and writes and keeps it. What other goroutines
// change meanwhile is not lost.
func (f *files) update(change func(*nodeRecord)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.record
	change(&r)
	r.Sum = file.Unsealed
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("write node record: %w", err)
	}
	if err := file.WriteSealed(f.path(nodeFile), append(text, '\n')); err != nil {
		return fmt.Errorf("write node record: %w", err)
	}
	f.record = r
	return nil
}

// path returns a path inside the directory.
func (f *files) path(elem ...string) string {
	return filepath.Join(append([]string{f.dir}, elem...)...)
}

// clearRaft removes what a start that never ended left of the replica.
func (f *files) clearRaft() error {
	if err := os.RemoveAll(f.path(raftDir)); err != nil {
		return fmt.Errorf("clear replica: %w", err)
	}
	if err := os.Mkdir(f.path(raftDir), dirMode); err != nil {
		return fmt.Errorf("clear replica: %w", err)
	}
	return nil
}

// close gives the directory back.
func (f *files) close() error { return f.lock.Close() }

// newNodeID returns a random (version 4) node id.
func newNodeID(random io.Reader) (compute.NodeID, error) {
	u, err := newUUID(random)
	return compute.NodeID{UUID: u}, err
}

func newUUID(random io.Reader) (compute.UUID, error) {
	var u compute.UUID
	if _, err := io.ReadFull(random, u[:]); err != nil {
		return u, fmt.Errorf("make id: %w", err)
	}
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return u, nil
}
