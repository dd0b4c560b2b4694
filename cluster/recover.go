package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"

	"berth/cluster/datadir"
	"berth/cluster/disk"
	"berth/cluster/file"
	"berth/cluster/liblog"
	"berth/cluster/raftconf"
	"berth/compute"
)

// peersFile is where a recovery writes the configuration that raft reads. It is
// there only while a recovery is under way.
const peersFile = "peers.json"

// What was begun in a data directory and not finished.
const (
	pendingRestore  = "restore"
	pendingRecovery = "recovery"
)

// Standing is where the replica of a stopped server stands.
type Standing struct {
	Last    uint64            // Index of its newest entry.
	Term    uint64            // The newest term that it has seen.
	Servers []raftconf.Server // As its newest configuration names them.
}

// Machine is what a stopped replica is read into. It is to be thrown away.
type Machine struct {
	FSM          raft.FSM
	StateCluster func() compute.UUID // Which cluster its state is of, as Config.StateCluster.
}

// Inspect reads where the replica stands, and refuses voters, if there are any,
// with which Recover would not go on, and a replica of another cluster. It hands
// what the replica holds to machine, and changes nothing.
func (s *Stopped) Inspect(machine Machine, voters []compute.NodeID) (Standing, error) {
	st, err := s.openStores(disk.OpenToRead)
	if err != nil {
		return Standing{}, err
	}
	defer st.log.Close()
	values := unwritten{st.log}
	configuration, err := raft.GetConfiguration(st.config, machine.FSM, st.log, values, st.snapshots, st.transport)
	if err != nil {
		return Standing{}, fmt.Errorf("read configuration: %w", err)
	}
	if err := checkStateOf(machine.StateCluster, s.dir.Path(datadir.RaftDir), s.ClusterID()); err != nil {
		return Standing{}, err
	}
	standing, err := st.standing(configuration)
	if err == nil && len(voters) > 0 {
		_, err = s.chosen(standing, voters)
	}
	return standing, err
}

// Recover makes voters the configuration of this replica, with all entries that
// it has: those that a majority never acknowledged, too. Every survivor is
// given the same voters, of which the server itself has to be one; all must be
// in the configuration that it has. It hands what the replica holds to machine.
// What Inspect refuses is not changed. It can be repeated.
func (s *Stopped) Recover(machine Machine, voters []compute.NodeID) (Standing, error) {
	before, err := s.Inspect(machine, nil)
	if err != nil {
		return Standing{}, err
	}
	configuration, err := s.chosen(before, voters)
	if err != nil {
		return before, err
	}
	record := s.dir.Record()
	record.Epoch, record.Pending, record.CatchUp = s.NextEpoch(), pendingRecovery, 0
	if err := s.dir.Put(record); err != nil {
		return before, err
	}
	path := s.dir.Path(datadir.RaftDir, peersFile)
	if err := file.Write(path, configuration); err != nil {
		return before, fmt.Errorf("write peers: %w", err)
	}
	after, err := s.recoverFrom(machine.FSM, path)
	if err != nil {
		return before, err
	}
	if err := os.Remove(path); err != nil {
		return after, fmt.Errorf("remove peers: %w", err)
	}
	record.Pending, record.Damaged = "", ""
	return after, errors.Join(file.SyncDir(filepath.Dir(path)), s.dir.Put(record))
}

// checkTrusted refuses a replica that is no base for a recovery.
func (s *Stopped) checkTrusted(known Standing) error {
	record := s.dir.Record()
	why := record.Damaged
	if why == "" && known.Last < record.CatchUp {
		why = fmt.Sprintf("it came in empty and has not reached entry %d", record.CatchUp)
	}
	if why == "" {
		return nil
	}
	return compute.Errorf(compute.CodeConflict, "This replica is not to be trusted with the state: %s. "+
		"Recover another server, or restore a backup.", why)
}

// maxRecovered is how many voters a recovery may go on with: of two both must
// agree, so that what either has acknowledged is kept. Of more, those that have
// less could outvote the one that has most.
const maxRecovered = 2

// chosen returns the content of the peers file.
func (s *Stopped) chosen(known Standing, voters []compute.NodeID) ([]byte, error) {
	type peer struct {
		ID      compute.NodeID `json:"id"`
		Address string         `json:"address"`
	}
	if len(voters) == 0 {
		return nil, compute.Errorf(compute.CodeInvalid,
			"Name the voters to go on with, this server, %s, among them: all that are left, the same on each of them. "+
				"Two that each went on alone would be two clusters.", s.Node())
	}
	if !slices.Contains(voters, s.Node()) {
		return nil, compute.Errorf(compute.CodeInvalid,
			"This server, %s, is not among the voters to go on with: recover those that are.", s.Node())
	}
	if len(voters) > maxRecovered {
		return nil, compute.Errorf(compute.CodeInvalid, "A recovery goes on with one or two voters, those that have most. "+
			"The others come in empty when they are started, and vote again once they have everything.")
	}
	if err := s.checkTrusted(known); err != nil {
		return nil, err
	}
	var peers []peer
	for _, id := range voters {
		i := slices.IndexFunc(known.Servers, func(s raftconf.Server) bool { return s.ID == id })
		if i < 0 {
			return nil, compute.Errorf(compute.CodeInvalid, "%s is no server of this replica's configuration.", id)
		}
		if slices.ContainsFunc(peers, func(p peer) bool { return p.ID == id }) {
			return nil, compute.Errorf(compute.CodeInvalid, "%s is named twice.", id)
		}
		peers = append(peers, peer{id, known.Servers[i].Address})
	}
	slices.SortFunc(peers, func(a, b peer) int { return bytes.Compare(a.ID.UUID[:], b.ID.UUID[:]) })
	return json.MarshalIndent(peers, "", "\t")
}

// recoverFrom makes the configuration in a file that of the replica, which
// Inspect has looked at.
func (s *Stopped) recoverFrom(machine raft.FSM, path string) (Standing, error) {
	configuration, err := raft.ReadConfigJSON(path)
	if err != nil {
		return Standing{}, fmt.Errorf("read peers: %w", err)
	}
	if err := disk.RemoveUnfinishedSnapshots(s.dir.Path(datadir.RaftDir)); err != nil {
		return Standing{}, err
	}
	st, err := s.openStores(openToRecover)
	if err != nil {
		return Standing{}, err
	}
	newest, err := st.newest()
	if err == nil {
		err = takeOver(st.log, newest, s.ClusterID(), s.Node())
	}
	if err != nil {
		return Standing{}, errors.Join(err, st.log.Close())
	}
	err = raft.RecoverCluster(st.config, machine, st.log, st.log, st.snapshots, st.transport, configuration)
	if err != nil {
		return Standing{}, errors.Join(fmt.Errorf("recover: %w", err), st.log.Close())
	}
	after, err := st.standing(configuration)
	return after, errors.Join(err, st.log.Close())
}

// stores are those of a replica that does not run.
type stores struct {
	config    *raft.Config
	log       *disk.Log
	snapshots *disk.Snapshots
	transport raft.Transport
}

// unwritten are the values of a replica that is not to be changed: raft stores
// its term whenever it looks at one.
type unwritten struct{ raft.StableStore }

func (unwritten) Set([]byte, []byte) error { return nil }

func (unwritten) SetUint64([]byte, uint64) error { return nil }

// openToRecover opens a log that is to be changed.
func openToRecover(dir string, covered uint64) (*disk.Log, error) {
	return disk.Open(dir, covered, func(error) {})
}

// openStores opens the replica, its log by the given function, and refuses one that
// is damaged or not this node's. Of the latter it speaks first: what is not ours
// may look damaged.
func (s *Stopped) openStores(open func(dir string, covered uint64) (*disk.Log, error)) (*stores, error) {
	if record := s.dir.Record(); record.Pending == pendingRestore {
		return nil, errPending(record.Pending)
	}
	dir := s.dir.Path(datadir.RaftDir)
	if _, err := os.Stat(filepath.Join(dir, disk.FileName)); err != nil {
		return nil, fmt.Errorf("%w: the replica is gone: %w", disk.ErrCorrupt, err)
	}
	snapshots, err := openQuiet(dir)
	if err != nil {
		return nil, err
	}
	covered, claimed, err := snapshots.Covered()
	if err != nil {
		return nil, err
	}
	if err := checkCluster(dir, s.ClusterID()); err != nil {
		return nil, err
	}
	log, err := open(dir, covered)
	if err != nil {
		return nil, err
	}
	if err = checkOwner(log, dir, s.ClusterID(), s.Node()); err == nil {
		err = disk.CheckGap(log, covered, claimed)
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	config := raft.DefaultConfig()
	config.LocalID, config.NoLegacyTelemetry = raftconf.ServerID(s.Node()), true
	config.Logger = liblog.Discard()
	_, transport := raft.NewInmemTransport("")
	return &stores{config, log, snapshots, transport}, nil
}

// newest returns the newest snapshot that can be read, nil for none.
func (st *stores) newest() (*raft.SnapshotMeta, error) {
	covered, _, err := st.snapshots.Covered()
	if err != nil {
		return nil, err
	}
	list, err := st.snapshots.List()
	for _, meta := range list {
		if meta.Index == covered {
			return meta, err
		}
	}
	return nil, err
}

func (st *stores) standing(configuration raft.Configuration) (Standing, error) {
	last, err := st.log.LastIndex()
	if err != nil {
		return Standing{}, err
	}
	covered, _, err := st.snapshots.Covered()
	if err != nil {
		return Standing{}, err
	}
	out := Standing{Last: max(last, covered)}
	if out.Term, err = st.log.GetUint64([]byte(disk.KeyCurrentTerm)); err != nil {
		return Standing{}, fmt.Errorf("read term: %w", err)
	}
	for _, s := range configuration.Servers {
		out.Servers = append(out.Servers, raftconf.Server{
			ID: raftconf.NodeOf(s.ID), Address: string(s.Address), Voter: s.Suffrage == raft.Voter,
		})
	}
	return out, nil
}

// errPending is returned where something that was begun on a stopped server
// was not finished.
func errPending(what string) error {
	if what == pendingRestore {
		return compute.Errorf(compute.CodeConflict,
			"A restore was begun here and not finished: run berth admin snapshot restore again.")
	}
	return compute.Errorf(compute.CodeConflict,
		"A recovery was begun here and not finished: run berth admin raft recover again.")
}

// checkFinished refuses to start a server on which a restore or a recovery was
// not finished, or into whose replica somebody put a peers file: raft would not
// read it, and whoever put it there expects that.
func checkFinished(dir *datadir.Dir) error {
	if pending := dir.Record().Pending; pending != "" {
		return errPending(pending)
	}
	path := dir.Path(datadir.RaftDir, peersFile)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return compute.Errorf(compute.CodeConflict,
			"%s was left there and is not used: remove it, and to go on without a quorum use berth admin raft recover.", path)
	}
	return nil
}
