package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"berth/cluster/datadir"
	"berth/cluster/disk"
	"berth/cluster/liblog"
	"berth/compute"
)

// SnapshotsKept is how many snapshots stay on disk.
const SnapshotsKept = 3

// Config configures a running replica.
type Config struct {
	Dir     *datadir.Dir
	Cluster compute.UUID
	Node    compute.NodeID

	FSM          raft.FSM
	StateCluster func() compute.UUID                        // As cluster.Config.StateCluster.
	CheckState   func(throttle func(bytes int) error) error // As cluster.Config.CheckState.

	MayVote   func() bool                       // Whether a vote may be stored.
	WrapStore func(raft.LogStore) raft.LogStore // Tests put a faulty disk under the log.
	Space     func(dir string) (free, total int64, err error)
	Fsync     func(took time.Duration) // Observes durable appends.
	Fatal     func(error)              // Ends the process.

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
}

// Raft has the methods of raft that a replica calls.
type Raft interface {
	Snapshot() raft.SnapshotFuture
	CommitIndex() uint64
}

// Replica is the replica of a running server. Its methods may be called from
// any goroutine once it is open.
type Replica struct {
	Log        *disk.Log
	Cache      *disk.Cache // The log as Raft reads it.
	Watchdog   *disk.Watchdog
	Snapshots  *disk.Snapshots
	Quarantine *Quarantine

	cfg     Config
	metrics metrics
	raft    Raft        // Set by Start.
	armed   atomic.Bool // Damage ends the process.
}

// New returns a replica that holds no file yet.
func New(cfg Config) *Replica {
	r := &Replica{cfg: cfg, metrics: newMetrics(cfg.Registerer)}
	r.Quarantine = &Quarantine{dir: cfg.Dir, logger: cfg.Logger, size: r.metrics.quarantine, space: cfg.Space}
	return r
}

// Arm makes damage that the files report end the process. Before that, Open
// returns the damage, and the replica may be replaced.
func (r *Replica) Arm() { r.armed.Store(true) }

// Start tells the replica which raft runs on it.
func (r *Replica) Start(on Raft) {
	r.raft = on
	r.metrics.miscounted.Add(float64(r.cfg.Dir.Record().Miscounted)) // Found by earlier processes.
	r.Quarantine.show()
}

// damaged ends the process when the replica is armed.
func (r *Replica) damaged(err error) {
	if r.armed.Load() {
		r.cfg.Fatal(err)
	}
}

// Replaced counts that a damaged replica was replaced by an empty one.
func (r *Replica) Replaced() { r.metrics.replaced.Inc() }

// Open opens the log and the snapshots and restores the state. Fresh says that
// the replica may be missing. The error is disk.ErrCorrupt for a damaged
// replica; then all files are closed again.
func (r *Replica) Open(fresh bool) error {
	dir := r.cfg.Dir.Path(datadir.RaftDir)
	_, err := os.Stat(filepath.Join(dir, disk.FileName))
	if !fresh && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: this node is a member, but its replica is gone: %w", disk.ErrCorrupt, err)
	}
	if damaged := r.cfg.Dir.Record().Damaged; !fresh && damaged != "" {
		return fmt.Errorf("%w: %s", disk.ErrCorrupt, damaged)
	}
	if err = r.openStores(dir); err != nil && r.Log != nil {
		err = errors.Join(err, r.Log.Close())
		r.Log = nil
	}
	return err
}

// openStores opens the log and the snapshots.
func (r *Replica) openStores(dir string) (err error) {
	if err := disk.RemoveUnfinishedSnapshots(dir); err != nil {
		return err
	}
	r.Watchdog = &disk.Watchdog{Now: time.Now, Observed: r.cfg.Fsync}
	r.Snapshots, err = disk.OpenSnapshots(dir, SnapshotsKept, r.Watchdog, r.damaged, liblog.Raft(r.cfg.Logger))
	if err != nil {
		return err
	}
	covered, claimed, err := r.Snapshots.Listed()
	if err != nil {
		return err
	}
	if err := checkCluster(dir, r.cfg.Cluster); err != nil {
		return err
	}
	if r.Log, err = disk.Open(dir, covered, r.damaged); err != nil {
		return err
	}
	if err := checkOwner(r.Log, dir, r.cfg.Cluster, r.cfg.Node); err != nil {
		return err
	}
	if err := disk.CheckGap(r.Log, covered, claimed); err != nil {
		return err
	}
	newest, err := r.restore(claimed)
	if err != nil {
		return err
	}
	if err := checkStateOf(r.cfg.StateCluster, dir, r.cfg.Cluster); err != nil {
		return err
	}
	if err := takeOver(r.Log, newest, r.cfg.Cluster, r.cfg.Node); err != nil {
		return err
	}
	r.Watchdog.LogStore, r.Watchdog.Stable = r.cfg.WrapStore(r.Log), r.Log
	r.Watchdog.Starved, r.Watchdog.Probe = r.Log.Starved, r.Log.Probe
	r.Watchdog.MayVote = r.cfg.MayVote
	if prober, ok := r.Watchdog.LogStore.(interface{ Probe() error }); ok {
		r.Watchdog.Probe = prober.Probe
	}
	r.Cache = &disk.Cache{LogStore: r.Watchdog}
	return nil
}

// restore restores the newest snapshot that the state machine accepts, in the
// place of raft, and sets newer ones aside. Claimed is the last entry of the
// newest snapshot of all. The error is disk.ErrCorrupt when the rest is not
// enough to start from. When the state machine refuses a snapshot with a coded
// error, because it is of a newer version, say, the start fails and nothing is
// set aside. It returns the restored snapshot, nil for none.
func (r *Replica) restore(claimed uint64) (*raft.SnapshotMeta, error) {
	list, err := r.Snapshots.List()
	if err != nil {
		return nil, err
	}
	var refused []string
	var reason error
	for _, meta := range list {
		// Checked first: a state that raft cannot continue from must not stay.
		if err := disk.CheckGap(r.Log, meta.Index, claimed); err != nil {
			return nil, errors.Join(err, reason)
		}
		err := r.restoreSnapshot(meta.ID)
		if err == nil {
			r.cfg.Logger.Info("state restored from snapshot", "index", meta.Index)
			return meta, r.setSnapshotsAside(refused, reason)
		}
		if !disk.Damaged(err) {
			return nil, fmt.Errorf("restore snapshot %s: %w", meta.ID, err)
		}
		r.metrics.damaged.Inc()
		r.cfg.Logger.Error("snapshot damaged", "index", meta.Index, "err", err)
		refused = append(refused, meta.ID)
		reason = errors.Join(reason, err)
	}
	if err := disk.CheckGap(r.Log, 0, claimed); err != nil {
		return nil, errors.Join(err, reason)
	}
	return nil, r.setSnapshotsAside(refused, reason)
}

// setSnapshotsAside moves damaged snapshots to the quarantine, with the reason.
func (r *Replica) setSnapshotsAside(ids []string, reason error) error {
	if len(ids) == 0 {
		return nil
	}
	dir, err := r.moveAside(ids, reason)
	if err != nil {
		return err
	}
	r.cfg.Logger.Warn("damaged snapshot set aside", "path", dir)
	r.Quarantine.Prune()
	return nil
}

// moveAside moves snapshots to a new directory of the quarantine and returns it.
func (r *Replica) moveAside(ids []string, reason error) (dir string, err error) {
	r.Quarantine.mu.Lock()
	defer r.Quarantine.mu.Unlock()
	if dir, err = r.Quarantine.newDir(r.cfg.Now(), reason); err != nil {
		return "", err
	}
	for _, id := range ids {
		if err := r.Snapshots.SetAside(id, dir); err != nil {
			return dir, fmt.Errorf("set damaged snapshot aside: %w", err)
		}
	}
	return dir, nil
}

// restoreSnapshot restores one snapshot; the state machine checks its content. A
// failure is damage, except for a coded error, which has advice for people, and for
// transient errors.
func (r *Replica) restoreSnapshot(id string) (err error) {
	content, err := r.Snapshots.Content(id)
	if err != nil {
		return fmt.Errorf("%w: snapshot %s: %w", disk.ErrCorrupt, id, err)
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: snapshot %s: restoring it: %v", disk.ErrCorrupt, id, v)
		}
	}()
	err = r.cfg.FSM.Restore(content)
	if _, coded := errors.AsType[*compute.Error](err); coded {
		// A flipped bit can make it look like a newer version's.
		damage := r.Snapshots.Check(id)
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
