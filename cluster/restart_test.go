package cluster_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/cluster"
	"berth/cluster/disk"
	"berth/cluster/file"
)

func TestRestartKeepsEverything(t *testing.T) {
	f := mustFleet(t, 3, nil)
	leader := f.leader()
	leader.mustPropose(t, toyCommand{Op: "a", Key: "k", Value: 7})
	id, clusterID, serial := leader.ID(), leader.ClusterID(), leader.Serial()
	for i, p := range f.peers {
		if p == leader {
			f.mustRestart(i) // At other ports: the others find it again.
			leader = f.peers[i]
		}
	}
	if leader.ID() != id || leader.ClusterID() != clusterID || leader.Serial() != serial {
		t.Error("the node came back as someone else")
	}
	if got := leader.mustRead(t, "k"); got != 7 {
		t.Errorf("after the restart it reads %d", got)
	}
	eventually(t, "the leader knows its new address", func() bool {
		for _, s := range f.leader().Servers() {
			if s.ID == id {
				return s.Address == leader.RPCAddress() && s.Voter
			}
		}
		return false
	})
}

func TestSingleNodeRestartsAtAnotherAddress(t *testing.T) {
	f := mustFleet(t, 1, nil)
	f.peers[0].mustPropose(t, toyCommand{Op: "a", Key: "k", Value: 7})
	p := f.mustRestart(0)
	if got := p.mustRead(t, "k"); got != 7 {
		t.Errorf("after the restart it reads %d", got)
	}
	f.mustAdd() // Other nodes get its current address.
	f.awaitVoters(2)
}

// TestOnlyVoterLeadsAtOnce starts and restarts a cluster of one, with an
// election timeout longer than the test.
func TestOnlyVoterLeadsAtOnce(t *testing.T) {
	f := mustFleet(t, 1, func(cfg *cluster.Config) { cfg.ElectAfter(time.Hour) })
	f.leader().mustPropose(t, toyCommand{Op: "1", Key: "k", Value: 1})
	p := f.peers[0]
	mustStop(t, p)
	if got := f.mustStartAgain(p).mustRead(t, "k"); got != 1 {
		t.Errorf("it reads %d", got)
	}
}

// TestLeaderThatMissedAnAnswer drops the answer by which a leader learns that a
// server has the entries right after its snapshot. Raft alone would send that
// snapshot forever.
func TestLeaderThatMissedAnAnswer(t *testing.T) {
	f, disks, ended := mustFaultyFleet(t, 3)
	leader := f.leader()
	slow := f.follower(leader)
	f.wire.isolate(slow.cfg.Name, true)
	for i := range int64(5) {
		leader.mustPropose(t, toyCommand{Op: fmt.Sprint(i), Key: "k", Value: i})
	}
	for _, p := range f.peers {
		if p != slow {
			if err := p.Compact(); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.wire.isolate(slow.cfg.Name, false)
	slow.mustRead(t, "k")
	if slow.fsm.served != 1 {
		t.Fatalf("it was restored %d times", slow.fsm.served)
	}

	disks[slow].hang.Store(true)
	leader.mustPropose(t, toyCommand{Op: "behind", Key: "k", Value: 5})
	eventually(t, "the entry comes", func() bool { return disks[slow].hung.Load() > 0 })
	f.wire.isolate(slow.cfg.Name, true)
	disks[slow].hang.Store(false)
	disks[slow].freeze.Do(func() { close(disks[slow].thaw) })
	f.wire.isolate(slow.cfg.Name, false)
	f.leader().mustPropose(t, toyCommand{Op: "more", Key: "k", Value: 6})
	if got := slow.mustRead(t, "k"); got != 6 || slow.fsm.served != 1 || len(ended()) > 0 {
		t.Errorf("it reads %d after %d restores, %v ended", got, slow.fsm.served, ended())
	}
}

func TestLaggingNodeGetsASnapshot(t *testing.T) {
	f := mustFleet(t, 3, nil)
	leader := f.leader()
	slow := f.follower(leader)
	f.wire.isolate(slow.cfg.Name, true)
	for i := range 50 {
		leader.mustPropose(t, toyCommand{Op: fmt.Sprint("op", i), Key: "k", Value: int64(i)})
	}
	for _, p := range f.peers {
		if p == slow {
			continue
		}
		if err := p.Compact(); err != nil {
			t.Fatal(err)
		}
		if p.FirstIndex() < 40 {
			t.Fatalf("the log of %s still begins at %d", p.cfg.Name, p.FirstIndex())
		}
	}
	f.wire.isolate(slow.cfg.Name, false)
	if got := slow.mustRead(t, "k"); got != 49 {
		t.Errorf("the node reads %d", got)
	}
	if slow.fsm.served != 1 {
		t.Errorf("the node was restored %d times", slow.fsm.served)
	}
	eventually(t, "clear the log that the snapshot replaced", func() bool {
		first := slow.FirstIndex()
		return first == 0 || first > 40
	})
	for i, p := range f.peers {
		if p == slow {
			slow = f.mustRestart(i)
		}
	}
	if got := slow.mustRead(t, "k"); got != 49 || slow.fsm.served != 1 {
		t.Errorf("restarted, the node reads %d after %d restores", got, slow.fsm.served)
	}
	// Entries appended after the snapshot leave no gap that a start refuses.
	for round := range int64(2) {
		f.leader().mustPropose(t, toyCommand{Op: fmt.Sprint("behind", round), Key: "k", Value: 50 + round})
		slow.mustRead(t, "k")
		slow = f.mustRestart(slices.Index(f.peers, slow))
		if got := slow.mustRead(t, "k"); got != 50+round {
			t.Errorf("restarted %d times more, the node reads %d", round+1, got)
		}
	}
}

func TestReadIndexOnAnIdleRestoredLeader(t *testing.T) {
	f := mustFleet(t, 1, nil)
	f.peers[0].mustPropose(t, toyCommand{Op: "a", Key: "k", Value: 7})
	if err := f.peers[0].Compact(); err != nil {
		t.Fatal(err)
	}
	// Its log then has hardly more than the entries of its own election.
	if got := f.mustRestart(0).mustRead(t, "k"); got != 7 {
		t.Errorf("it reads %d", got)
	}
}

func TestDamagedReplicaIsNotStarted(t *testing.T) {
	for _, test := range []struct {
		name   string
		damage func(t *testing.T, dir string)
	}{
		{"raft.db is gone", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "raft", "raft.db")); err != nil {
				t.Fatal(err)
			}
		}},
		{"raft.db is empty", func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, "raft", "raft.db"), 0); err != nil {
				t.Fatal(err)
			}
		}},
		{"raft.db is cut", func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, "raft", "raft.db"), 16<<10); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := mustFleet(t, 1, nil)
			for i := range 100 {
				f.peers[0].mustPropose(t, toyCommand{Op: fmt.Sprint(i), Key: "k", Pad: make([]byte, 512)})
			}
			if err := f.peers[0].stop(); err != nil {
				t.Fatal(err)
			}
			cfg := f.peers[0].cfg // Bootstrap is still set: it must have no effect.
			test.damage(t, cfg.DataDir)
			if err := f.refusal(cfg); !errors.Is(err, disk.ErrCorrupt) {
				t.Errorf("open gives %v", err)
			}
		})
	}
}

func TestUnfinishedSnapshotsAreRemoved(t *testing.T) {
	f := mustFleet(t, 1, nil)
	f.peers[0].mustPropose(t, toyCommand{Op: "a", Key: "k", Value: 7})
	left := filepath.Join(f.peers[0].cfg.DataDir, "raft", "snapshots", "2-9-1700000000000.tmp")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	f.mustRestart(0)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestFilesAreForTheOwnerOnly(t *testing.T) {
	f := mustFleet(t, 2, nil)
	if err := f.peers[0].Compact(); err != nil {
		t.Log(err) // Having nothing new to snapshot is fine.
	}
	for _, p := range f.peers {
		err := filepath.Walk(p.cfg.DataDir, func(path string, info os.FileInfo, err error) error {
			inSnapshots := filepath.Base(filepath.Dir(filepath.Dir(path))) == "snapshots" || info.Name() == "snapshots" ||
				filepath.Base(filepath.Dir(path)) == "snapshots"
			// The library gives these wider modes, inside a directory that only
			// the owner may enter.
			if err == nil && !inSnapshots && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestDamagedFilesSaySo flips a bit in each of the small files that a node
// needs. The node must not start with another identity or key than before, and
// names the damaged file.
func TestDamagedFilesSaySo(t *testing.T) {
	f := mustFleet(t, 1, nil)
	mustStop(t, f.peers[0])
	cfg := f.peers[0].cfg
	for _, name := range []string{"node.json", "keys/gossip.json", "pki/ca.crt", "pki/ca.key"} {
		path := filepath.Join(cfg.DataDir, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		mustEdit(t, path, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
		if err := f.refusal(cfg); !errors.Is(err, file.ErrDamaged) || !strings.Contains(err.Error(), filepath.Base(name)) {
			t.Errorf("%s: open gives %v", name, err)
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A server issues its own certificate again.
	mustEdit(t, filepath.Join(cfg.DataDir, "pki", "node.crt"), func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	f.mustStartAgain(f.peers[0])
}
