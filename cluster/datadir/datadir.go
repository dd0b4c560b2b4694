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

// Where things are in the data directory.
const (
	NodeFile = "node.json"
	lockFile = "lock"
	PKIDir   = "pki"
	keysDir  = "keys"
	RaftDir  = "raft"
	DirMode  = 0o700
	fileMode = 0o600
)

// The standing of a node. Only a member has anything to lose; what the others
// left behind is thrown away and made again.
const (
	StateNew     = ""
	StateJoining = "joining"
	StateMember  = "member"
)

// Peer is where a peer was last reached.
type Peer struct {
	ID     compute.NodeID `json:"id"`
	RPC    string         `json:"rpc"`
	Gossip string         `json:"gossip"`
}

// Record is the content of node.json. That it says "member" is what keeps
// a node from ever bootstrapping twice.
type Record struct {
	NodeID    compute.NodeID `json:"node_id"`
	ClusterID compute.UUID   `json:"cluster_id"`
	State     string         `json:"standing"`
	Peers     []Peer         `json:"peers,omitempty"`

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

// Dir is the data directory, held exclusively.
type Dir struct {
	root string
	lock *os.File

	mu     sync.Mutex
	record Record
}

// Open makes the directory if need be, locks it and reads the record.
func Open(dir string) (*Dir, error) {
	for _, sub := range []string{dir, filepath.Join(dir, PKIDir), filepath.Join(dir, keysDir), filepath.Join(dir, RaftDir)} {
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
		return compute.Errorf(compute.CodeConflict, "%s, which says who this node is, cannot be read: %w. "+
			"Put a copy of it back, or move %s away and have the node join anew.", d.Path(NodeFile), err, d.root)
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

// Put writes the record and keeps it.
func (d *Dir) Put(r Record) error {
	return d.Update(func(now *Record) { *now = r })
}

// Update changes the record, and writes and keeps it. What other goroutines
// change meanwhile is not lost.
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

// KeyringPath returns where the gossip keyring is.
func (d *Dir) KeyringPath() string { return d.Path(keysDir, "gossip.json") }

// Path returns a path inside the directory.
func (d *Dir) Path(elem ...string) string {
	return filepath.Join(append([]string{d.root}, elem...)...)
}

// ClearReplica removes what a start that never ended left of the replica.
func (d *Dir) ClearReplica() error {
	if err := os.RemoveAll(d.Path(RaftDir)); err != nil {
		return fmt.Errorf("clear replica: %w", err)
	}
	if err := os.Mkdir(d.Path(RaftDir), DirMode); err != nil {
		return fmt.Errorf("clear replica: %w", err)
	}
	return nil
}

// Close gives the directory back.
func (d *Dir) Close() error { return d.lock.Close() }
