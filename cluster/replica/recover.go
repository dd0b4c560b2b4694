package replica

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

// peersFile is where a recovery writes the configuration for raft. It exists only
// during a recovery.
const peersFile = "peers.json"

// Operations on a data directory that were begun and not finished.
const (
	pendingRestore  = "restore"
	pendingRecovery = "recovery"
)

// Position is how far the replica of a stopped server is.
type Position struct {
	Last    uint64            // Index of its newest entry.
	Term    uint64            // The newest term that it has seen.
	Servers []raftconf.Server // As its newest configuration names them.
}

// Machine is the state machine that a stopped replica is read into. It is
// discarded afterwards.
type Machine struct {
	FSM          raft.FSM
	StateCluster func() compute.UUID // As cluster.Config.StateCluster.
}

// Inspect reads the replica into machine and returns its position. It refuses a
// replica of another cluster, and voters, if any, that Recover would refuse. It
// changes nothing.
func (s *Stopped) Inspect(machine Machine, voters []compute.NodeID) (Position, error) {
	st, err := s.openStores(disk.OpenToRead)
	if err != nil {
		return Position{}, err
	}
	defer st.log.Close()
	values := unwritten{st.log}
	configuration, err := raft.GetConfiguration(st.config, machine.FSM, st.log, values, st.snapshots, st.transport)
	if err != nil {
		return Position{}, fmt.Errorf("read configuration: %w", err)
	}
	if err := checkStateOf(machine.StateCluster, s.dir.Path(datadir.RaftDir), s.ClusterID()); err != nil {
		return Position{}, err
	}
	at, err := st.position(configuration)
	if err == nil && len(voters) > 0 {
		_, err = s.chosen(at, voters)
	}
	return at, err
}

// Recover makes voters the configuration of this replica, with all of its entries,
// including those that a majority never acknowledged. Every survivor is given the
// same voters: this server is one of them, and all are in its present
// configuration. It reads the replica into machine. A replica that Inspect refuses
// is not changed. It can be repeated.
func (s *Stopped) Recover(machine Machine, voters []compute.NodeID) (Position, error) {
	before, err := s.Inspect(machine, nil)
	if err != nil {
		return Position{}, err
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

// checkTrusted refuses a replica that a recovery must not build on.
func (s *Stopped) checkTrusted(known Position) error {
	record := s.dir.Record()
	why := record.Damaged
	if why == "" && known.Last < record.CatchUp {
		why = fmt.Sprintf("it rejoined with an empty replica and has not reached entry %d", record.CatchUp)
	}
	if why == "" {
		return nil
	}
	return compute.Errorf(compute.CodeConflict, "This replica is not to be trusted with the state: %s. "+
		"Recover another server, or restore a backup.", why)
}

// maxRecovered is how many voters a recovery may name. Two voters must both agree, so
// everything that either has acknowledged is kept. Among more voters, those with fewer
// entries could outvote the one with most.
const maxRecovered = 2

// chosen returns the content of the peers file for the voters, or refuses them.
func (s *Stopped) chosen(known Position, voters []compute.NodeID) ([]byte, error) {
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
		return nil, compute.Errorf(compute.CodeInvalid, "Name one or two voters: those with the longest logs. "+
			"The others rejoin with empty replicas when they are started, and vote again once they have everything.")
	}
	if err := s.checkTrusted(known); err != nil {
		return nil, err
	}
	var peers []peer
	for _, id := range voters {
		i := slices.IndexFunc(known.Servers, func(s raftconf.Server) bool { return s.ID == id })
		if i < 0 {
			return nil, compute.Errorf(compute.CodeInvalid, "%s is not a server of this replica's configuration.", id)
		}
		if slices.ContainsFunc(peers, func(p peer) bool { return p.ID == id }) {
			return nil, compute.Errorf(compute.CodeInvalid, "%s is named twice.", id)
		}
		peers = append(peers, peer{id, known.Servers[i].Address})
	}
	slices.SortFunc(peers, func(a, b peer) int { return bytes.Compare(a.ID.UUID[:], b.ID.UUID[:]) })
	return json.MarshalIndent(peers, "", "\t")
}

// recoverFrom gives the replica, which Inspect has accepted, the configuration in
// a file.
func (s *Stopped) recoverFrom(machine raft.FSM, path string) (Position, error) {
	configuration, err := raft.ReadConfigJSON(path)
	if err != nil {
		return Position{}, fmt.Errorf("read peers: %w", err)
	}
	if err := disk.RemoveUnfinishedSnapshots(s.dir.Path(datadir.RaftDir)); err != nil {
		return Position{}, err
	}
	st, err := s.openStores(openToRecover)
	if err != nil {
		return Position{}, err
	}
	newest, err := st.newest()
	if err == nil {
		err = takeOver(st.log, newest, s.ClusterID(), s.Node())
	}
	if err != nil {
		return Position{}, errors.Join(err, st.log.Close())
	}
	err = raft.RecoverCluster(st.config, machine, st.log, st.log, st.snapshots, st.transport, configuration)
	if err != nil {
		return Position{}, errors.Join(fmt.Errorf("recover: %w", err), st.log.Close())
	}
	after, err := st.position(configuration)
	return after, errors.Join(err, st.log.Close())
}

// stores are the files of a stopped replica.
type stores struct {
	config    *raft.Config
	log       *disk.Log
	snapshots *disk.Snapshots
	transport raft.Transport
}

// unwritten drops writes: raft stores its term even when it only reads a replica.
type unwritten struct{ raft.StableStore }

func (unwritten) Set([]byte, []byte) error { return nil }

func (unwritten) SetUint64([]byte, uint64) error { return nil }

// openToRecover opens a log for writing.
func openToRecover(dir string, covered uint64) (*disk.Log, error) {
	return disk.Open(dir, covered, func(error) {})
}

// openStores opens the replica, its log by the given function, and refuses one that
// is damaged or not this node's. It checks the owner first: a foreign replica may
// look damaged.
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

func (st *stores) position(configuration raft.Configuration) (Position, error) {
	last, err := st.log.LastIndex()
	if err != nil {
		return Position{}, err
	}
	covered, _, err := st.snapshots.Covered()
	if err != nil {
		return Position{}, err
	}
	out := Position{Last: max(last, covered)}
	if out.Term, err = st.log.GetUint64([]byte(disk.KeyCurrentTerm)); err != nil {
		return Position{}, fmt.Errorf("read term: %w", err)
	}
	for _, s := range configuration.Servers {
		out.Servers = append(out.Servers, raftconf.Server{
			ID: raftconf.NodeOf(s.ID), Address: string(s.Address), Voter: s.Suffrage == raft.Voter,
		})
	}
	return out, nil
}

// errPending refuses a server on which a restore or a recovery was not finished.
func errPending(what string) error {
	if what == pendingRestore {
		return compute.Errorf(compute.CodeConflict,
			"A restore was begun here and not finished: run berth admin snapshot restore again.")
	}
	return compute.Errorf(compute.CodeConflict,
		"A recovery was begun here and not finished: run berth admin raft recover again.")
}

// CheckFinished refuses to start a server with an unfinished restore or recovery,
// or with a peers file in its replica: an operator that put it there expects that raft
// reads it, and it does not.
func CheckFinished(dir *datadir.Dir) error {
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
