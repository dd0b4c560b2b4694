package cluster_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"berth/cluster/disk"
	"berth/cluster/replica"
	"berth/compute"
)

// mustOutrun gives the replica of a stopped server a snapshot that ends beyond
// its log, as a crash does while the leader's snapshot is installed. It also
// removes the replica's owner, which older versions did not store.
func mustOutrun(t *testing.T, p *peer, last, term uint64) {
	t.Helper()
	dir := filepath.Join(p.cfg.DataDir, "raft")
	watch := &disk.Watchdog{Now: time.Now, Observed: func(time.Duration) {}}
	snapshots, err := disk.OpenSnapshots(dir, 3, watch, func(err error) { t.Error(err) }, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	_, transport := raft.NewInmemTransport("")
	self := raft.Server{ID: raft.ServerID(p.ID().String()), Address: raft.ServerAddress(p.RPCAddress())}
	sink, err := snapshots.Create(raft.SnapshotVersionMax, last, term,
		raft.Configuration{Servers: []raft.Server{self}}, 1, transport)
	if err != nil {
		t.Fatal(err)
	}
	machine := newToyFSM()
	machine.state.Values["k"], machine.state.Index = 7, last
	state, err := machine.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	mustEditValues(t, filepath.Join(dir, disk.FileName), func(values *bbolt.Bucket) error {
		return values.Delete([]byte("BerthOwner"))
	})
	if err := errors.Join(state.Persist(sink), os.Remove(filepath.Join(dir, "tail"))); err != nil {
		t.Fatal(err)
	}
}

// mustEditValues edits the values in a closed raft.db.
func mustEditValues(t *testing.T, path string, edit func(*bbolt.Bucket) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return edit(tx.Bucket([]byte("conf"))) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// contents returns the hashes of all files below a directory.
func contents(t *testing.T, dir string) map[string]compute.Hash {
	t.Helper()
	all := make(map[string]compute.Hash)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = sha256.Sum256(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestWhatIsNotRecoveredIsNotChanged inspects a stopped server, and attempts
// recoveries that must be refused. The directory stays unchanged, to the last
// byte, until a recovery succeeds.
func TestWhatIsNotRecoveredIsNotChanged(t *testing.T) {
	f := mustFleet(t, 1, nil)
	p := f.peers[0]
	p.mustPropose(t, toyCommand{Op: "a", Key: "k", Value: 1})
	mustStop(t, p)
	raftDir := filepath.Join(p.cfg.DataDir, "raft")
	stopped, err := replica.OpenStopped(p.cfg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	other, voters := compute.UUID{1}, []compute.NodeID{p.ID()}
	machine := func(of compute.UUID) replica.Machine {
		return replica.Machine{FSM: newToyFSM(), StateCluster: func() compute.UUID { return of }}
	}
	at, err := stopped.Inspect(machine(p.ClusterID()), nil)
	if err != nil {
		t.Fatal(err)
	}
	last := at.Last + 900
	mustOutrun(t, p, last, at.Term)
	kept := contents(t, p.cfg.DataDir)
	unchanged := func(after string) {
		t.Helper()
		if !maps.Equal(contents(t, p.cfg.DataDir), kept) {
			t.Errorf("after %s the directory has changed", after)
		}
	}

	if at, err := stopped.Inspect(machine(p.ClusterID()), voters); err != nil || at.Last != last {
		t.Errorf("it ends at entry %d, %v; want %d", at.Last, err, last)
	}
	unchanged("a look")
	foreign := "of cluster " + other.String()
	if _, err := stopped.Recover(machine(other), voters); err == nil || !strings.Contains(err.Error(), foreign) {
		t.Errorf("with a state of another cluster: %v", err)
	}
	unchanged("the state of another cluster")

	claims := filepath.Join(raftDir, "snapshots", fmt.Sprintf("%d-%d-1700000000000", at.Term, last+1))
	if err := os.Mkdir(claims, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := stopped.Recover(machine(p.ClusterID()), voters); !errors.Is(err, disk.ErrCorrupt) {
		t.Errorf("with an unreadable snapshot: %v", err)
	}
	unchanged("an unreadable snapshot")
	if err := os.Remove(claims); err != nil {
		t.Fatal(err)
	}

	log := filepath.Join(raftDir, disk.FileName)
	if err := errors.Join(os.Rename(log, log+".own"), os.Rename(mustOthersLog(t, other), log)); err != nil {
		t.Fatal(err)
	}
	if _, err := stopped.Inspect(machine(p.ClusterID()), nil); err == nil || !strings.Contains(err.Error(), foreign) {
		t.Errorf("with a log of another cluster that is damaged: %v", err)
	}
	if err := os.Rename(log+".own", log); err != nil {
		t.Fatal(err)
	}
	unchanged("the log of another cluster")

	if at, err := stopped.Recover(machine(p.ClusterID()), voters); err != nil || at.Last != last {
		t.Errorf("recovered: it ends at entry %d, %v; want %d", at.Last, err, last)
	}
	if owner, err := disk.OwnerIn(raftDir); err != nil || len(owner) == 0 {
		t.Errorf("recovered: it is of %x, %v", owner, err)
	}
	if err := stopped.Close(); err != nil {
		t.Fatal(err)
	}
	if got := f.mustStartAgain(p).mustRead(t, "k"); got != 7 {
		t.Errorf("it reads %d, want what the snapshot holds", got)
	}
}

// mustOthersLog returns the path of a log of another cluster that also looks
// damaged.
func mustOthersLog(t *testing.T, of compute.UUID) string {
	t.Helper()
	dir := t.TempDir()
	s, err := disk.Open(dir, 0, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	owner := append(append([]byte{}, of[:]...), of[:]...)
	if err := errors.Join(s.SetOwner(owner), s.Close()); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, disk.FileName)
	mustEditValues(t, log, func(values *bbolt.Bucket) error { return values.Put([]byte("Stray"), []byte("x")) })
	return log
}
