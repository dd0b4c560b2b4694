package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/cluster/file"
	"berth/compute"
)

// Names and modes in the data directory.
const (
	NodeFile = "node.json"
	lockFile = "lock"
	PKIDir   = "pki"
	keysDir  = "keys"
	RaftDir  = "raft"
	DirMode  = 0o700
	fileMode = 0o600
)

// States of a node. Only a member has data to lose. A node in another state
// deletes its data and starts over.
const (
	StateNew     = ""
	StateJoining = "joining"
	StateMember  = "member"
)

// Peer holds the last known addresses of a peer.
type Peer struct {
	ID     compute.NodeID `json:"id"`
	RPC    string         `json:"rpc"`
	Gossip string         `json:"gossip"`
}

// Record is the content of node.json. The state "member" prevents a second
// bootstrap.
type Record struct {
	NodeID    compute.NodeID `json:"node_id"`
	ClusterID compute.UUID   `json:"cluster_id"`
	State     string         `json:"standing"`
	Peers     []Peer         `json:"peers,omitempty"`

	// Epoch is the epoch of the cluster that the node belongs to. Servers of
	// different epochs do not communicate.
	Epoch   uint64 `json:"epoch,omitempty"`
	Pending string `json:"pending,omitempty"` // The unfinished restore or recovery; "" for none.

	// Damaged is the reason why the replica must not be used although it is
	// readable. DivergedAt is when its state was last found to differ.
	Damaged    string    `json:"damaged,omitempty"`
	DivergedAt time.Time `json:"diverged_at,omitzero"`
	OutUntil   time.Time `json:"out_until,omitzero"` // When the node may return after a repeated divergence.

	// Miscounted counts how often the state in memory was found to be wrong
	// since the last scrub that found it intact.
	Miscounted int `json:"miscounted,omitempty"`

	// CatchUp is the index that a replica that started empty must reach before
	// this server may be a candidate in elections; 0 if it may.
	CatchUp uint64 `json:"catch_up,omitempty"`

	Sum string `json:"crc32c,omitempty"` // Checksum of the text, see file.WriteSealed.
}

// Dir is the locked data directory.
type Dir struct {
	root string
	lock *os.File

	mu     sync.Mutex
	record Record
}

// Open creates the directory if it is missing, locks it and reads the record.
func Open(dir string) (*Dir, error) {
	for _, sub := range []string{
		dir, filepath.Join(dir, PKIDir), filepath.Join(dir, keysDir), filepath.Join(dir, RaftDir),
	} {
		if err := os.MkdirAll(sub, DirMode); err != nil {
			return nil, fmt.Errorf("make data directory: %w", err)
		}
		if err := os.Chmod(sub, DirMode); err != nil {
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
	d := &Dir{root: dir, lock: lock}
	if err := d.load(); err != nil {
		lock.Close()
		return nil, err
	}
	return d, nil
}

func (d *Dir) load() error {
	text, err := file.ReadSealed(d.Path(NodeFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		if err = json.Unmarshal(text, &d.record); err != nil {
			err = fmt.Errorf("%w: %w", file.ErrDamaged, err)
		}
	}
	if errors.Is(err, file.ErrDamaged) {
		return compute.Errorf(compute.CodeConflict, "%s, which holds the identity of this node, cannot be read: %w. "+
			"Put a copy of it back, or move %s away and have the node join again.", d.Path(NodeFile), err, d.root)
	}
	if err != nil {
		return fmt.Errorf("read node record: %w", err)
	}
	return nil
}

// Record returns the record.
func (d *Dir) Record() Record {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.record
}

// Put replaces the record on disk and in memory.
func (d *Dir) Put(r Record) error {
	return d.Update(func(now *Record) { *now = r })
}

// Update changes the record on disk and in memory. Concurrent updates are not
// lost.
func (d *Dir) Update(change func(*Record)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.record
	change(&r)
	r.Sum = file.Unsealed
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("write node record: %w", err)
	}
	if err := file.WriteSealed(d.Path(NodeFile), append(text, '\n')); err != nil {
		return fmt.Errorf("write node record: %w", err)
	}
	d.record = r
	return nil
}

// Root returns the path of the directory.
func (d *Dir) Root() string { return d.root }

// KeyringPath returns the path of the gossip keyring.
func (d *Dir) KeyringPath() string { return d.Path(keysDir, "gossip.json") }

// Path returns a path inside the directory.
func (d *Dir) Path(elem ...string) string {
	return filepath.Join(append([]string{d.root}, elem...)...)
}

// ClearReplica removes the partial replica of an interrupted start.
func (d *Dir) ClearReplica() error {
	if err := os.RemoveAll(d.Path(RaftDir)); err != nil {
		return fmt.Errorf("clear replica: %w", err)
	}
	if err := os.Mkdir(d.Path(RaftDir), DirMode); err != nil {
		return fmt.Errorf("clear replica: %w", err)
	}
	return nil
}

// Close unlocks the directory, also where a child that was forked a moment ago
// still shares the descriptor of the lock.
func (d *Dir) Close() error {
	return errors.Join(unix.Flock(int(d.lock.Fd()), unix.LOCK_UN), d.lock.Close())
}
