package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/datadir"
	"berth/cluster/disk"
	"berth/cluster/file"
	"berth/cluster/liblog"
	"berth/cluster/raftconf"
	"berth/compute"
)

// newRaftDir holds a replica while it is written.
const newRaftDir = "raft.new"

// openQuiet opens the snapshots of a stopped replica without a log.
func openQuiet(dir string) (*disk.Snapshots, error) {
	watch := &disk.Watchdog{Now: time.Now, Observed: func(time.Duration) {}}
	return disk.OpenSnapshots(dir, SnapshotsKept, watch, func(error) {}, liblog.Discard())
}

// Stopped is the data directory of a server that does not run. While it is
// open, none can be started on it.
type Stopped struct {
	dir        *datadir.Dir
	quarantine Quarantine
}

// OpenStopped opens the data directory of a server that was stopped. The code
// is conflict when it runs, not_found when there is no server in dir.
func OpenStopped(dir string) (*Stopped, error) {
	if _, err := os.Stat(filepath.Join(dir, datadir.NodeFile)); errors.Is(err, fs.ErrNotExist) {
		return nil, compute.Errorf(compute.CodeNotFound, "There is no node in %s: its %s is missing.", dir, datadir.NodeFile)
	}
	f, err := datadir.Open(dir)
	if err != nil {
		if compute.CodeOf(err) == compute.CodeConflict {
			return nil, compute.Errorf(compute.CodeConflict, "A node runs in %s: stop it first.", dir)
		}
		return nil, err
	}
	s := &Stopped{dir: f, quarantine: Quarantine{dir: f}}
	if _, err := os.Stat(f.Path(datadir.PKIDir, "ca.key")); f.Record().State != datadir.StateMember || err != nil {
		return nil, errors.Join(s.Close(), compute.Errorf(compute.CodeConflict,
			"The node in %s is not a server of a cluster: a server holds %s/ca.key.", dir, datadir.PKIDir))
	}
	return s, nil
}

// Node returns the server's id.
func (s *Stopped) Node() compute.NodeID { return s.dir.Record().NodeID }

// ClusterID returns the id of the cluster that it is a member of.
func (s *Stopped) ClusterID() compute.UUID { return s.dir.Record().ClusterID }

// Close gives the directory back.
func (s *Stopped) Close() error { return s.dir.Close() }

// NextEpoch returns the epoch of the cluster after a restore or recovery here. A
// repeat of an unfinished one returns the same epoch.
func (s *Stopped) NextEpoch() uint64 {
	record := s.dir.Record()
	if record.Pending != "" {
		return record.Epoch
	}
	return record.Epoch + 1
}

// Replacement is the state that a server is to hold instead of its replica.
type Replacement struct {
	Epoch       uint64 // The cluster's epoch from then on.
	Index, Term uint64 // Index and term of the last entry in Write's state.
	Address     string // host:port of the server's cluster port, as last known.
	Write       func(raft.SnapshotSink) error
}

// Replace makes the server the only voter of its cluster, with the state that r
// writes. It sets the former replica aside and returns its path, "" for none.
// After a failure or a crash it can be repeated, and the server does not start
// before it is finished.
func (s *Stopped) Replace(r Replacement, now time.Time) (aside string, err error) {
	if err := s.make(r); err != nil {
		return "", fmt.Errorf("make replica: %w", err)
	}
	// The epoch is on disk first: no server of the former epoch may reach this
	// replica.
	record := s.dir.Record()
	record.Epoch, record.Pending, record.CatchUp = r.Epoch, pendingRestore, 0
	if err := s.dir.Put(record); err != nil {
		return "", err
	}
	if aside, err = s.quarantine.SetAside(now, nil); err != nil {
		return "", err
	}
	if err := os.Rename(s.dir.Path(newRaftDir), s.dir.Path(datadir.RaftDir)); err != nil {
		return aside, fmt.Errorf("put replica in place: %w", err)
	}
	if err := file.SyncDir(s.dir.Root()); err != nil {
		return aside, err
	}
	record.Pending, record.Damaged, record.OutUntil = "", "", time.Time{}
	return aside, s.dir.Put(record)
}

// make writes the new replica beside the old one.
func (s *Stopped) make(r Replacement) error {
	dir := s.dir.Path(newRaftDir)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, datadir.DirMode); err != nil {
		return err
	}
	snapshots, err := openQuiet(dir)
	if err != nil {
		return err
	}
	id := s.Node()
	if r.Address == "" {
		r.Address = id.String() // Dialling resolves ids.
	}
	_, transport := raft.NewInmemTransport("")
	sink, err := snapshots.Create(raft.SnapshotVersionMax, r.Index, r.Term, raft.Configuration{Servers: []raft.Server{
		{Suffrage: raft.Voter, ID: raftconf.ServerID(id), Address: raft.ServerAddress(r.Address)},
	}}, r.Index, transport)
	if err != nil {
		return err
	}
	if err := r.Write(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	store, err := disk.Open(dir, r.Index, func(error) {})
	if err != nil {
		return err
	}
	// At least every term that the state has seen, since commands carry it.
	err = store.SetUint64([]byte(disk.KeyCurrentTerm), max(r.Term, s.oldTerm()))
	return errors.Join(err, store.SetOwner(ownerOf(s.ClusterID(), id)), store.Close(), file.SyncDir(dir))
}

// oldTerm returns the newest term that the present replica has seen, 0 when it
// cannot be read.
func (s *Stopped) oldTerm() uint64 {
	dir := s.dir.Path(datadir.RaftDir)
	if _, err := os.Stat(filepath.Join(dir, disk.FileName)); err != nil {
		return 0
	}
	snapshots, err := openQuiet(dir)
	if err != nil {
		return 0
	}
	covered, _, err := snapshots.Covered()
	if err != nil {
		covered = 0 // The log has the term even if it depends on a snapshot.
	}
	store, err := disk.OpenToRead(dir, covered)
	if err != nil {
		return 0
	}
	defer store.Close()
	term, err := store.GetUint64([]byte(disk.KeyCurrentTerm))
	if err != nil {
		return 0
	}
	return term
}

// Rejoin makes the server rejoin with an empty replica at its next start, as if
// its replica were damaged. It also readmits one that stays out because its state
// was wrong twice.
func (s *Stopped) Rejoin() error {
	record := s.dir.Record()
	if len(record.Peers) == 0 {
		return ErrAlone()
	}
	if record.Pending != "" {
		return errPending(record.Pending)
	}
	if record.Damaged == "" {
		record.Damaged = "an operator made this server rejoin with an empty replica"
	}
	record.OutUntil = time.Time{}
	return s.dir.Put(record)
}
