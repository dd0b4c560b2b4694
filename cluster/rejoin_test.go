package cluster_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster"
	"berth/cluster/disk"
	"berth/cluster/replica"
	"berth/compute"
)

// marker is in each entry whose bytes a test damages.
const marker = "a-text-that-is-nowhere-else"

// damages are ways in which a disk can lose a replica or a part of it. After
// each the replica must not vote.
var damages = []struct {
	name   string
	leader bool // The leader is damaged.
	damage func(t *testing.T, raft string)
}{
	{"an entry has a flipped bit", false, func(t *testing.T, raft string) {
		mustEdit(t, filepath.Join(raft, "raft.db"), func(b []byte) []byte {
			if !bytes.Contains(b, []byte(marker)) {
				t.Fatal("the entry is not there")
			}
			return bytes.ReplaceAll(b, []byte(marker), []byte("b"+marker[1:])) // Free pages contain some, too.
		})
	}},
	{"raft.db is cut", false, func(t *testing.T, raft string) {
		mustEdit(t, filepath.Join(raft, "raft.db"), func(b []byte) []byte { return b[:2*os.Getpagesize()] })
	}},
	{"raft.db is gone", false, func(t *testing.T, raft string) {
		if err := os.Remove(filepath.Join(raft, "raft.db")); err != nil {
			t.Fatal(err)
		}
	}},
	{"the whole replica is gone", false, func(t *testing.T, raft string) {
		if err := os.RemoveAll(raft); err != nil {
			t.Fatal(err)
		}
	}},
	{"the newest snapshot is broken", false, func(t *testing.T, raft string) {
		all, err := filepath.Glob(filepath.Join(raft, "snapshots", "*", "state.bin"))
		if err != nil || len(all) == 0 {
			t.Fatalf("snapshots: %v, %v", all, err)
		}
		for _, path := range all {
			mustEdit(t, path, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
		}
	}},
	{"the newest vote is gone", true, func(t *testing.T, raft string) {
		mustEdit(t, filepath.Join(raft, "tail"), func(b []byte) []byte {
			binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+1) // As if one more value had been written.
			binary.BigEndian.PutUint32(b[16:], crc32.ChecksumIEEE(b[:16]))
			return b
		})
	}},
	{"the newest entries are gone", false, func(t *testing.T, raft string) {
		mustEdit(t, filepath.Join(raft, "tail"), func(b []byte) []byte {
			binary.BigEndian.PutUint64(b, 1<<40) // As if this many had been written.
			binary.BigEndian.PutUint32(b[16:], crc32.ChecksumIEEE(b[:16]))
			return b
		})
	}},
}

// mustEdit changes a file.
func mustEdit(t *testing.T, path string, edit func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, edit(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedReplicaHeals damages the replicas of a cluster one after the
// other. Each server rejoins with an empty replica and without a vote, and
// votes again after it has caught up.
func TestDamagedReplicaHeals(t *testing.T) {
	f := mustFleet(t, 3, nil)
	written := int64(0)
	write := func() {
		written++
		f.leader().mustPropose(t, toyCommand{Op: fmt.Sprint(marker, written), Key: "k", Value: written})
	}
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			for range 5 {
				write()
			}
			p := f.leader()
			if !d.leader {
				p = f.follower(p)
			}
			p.mustRead(t, "k")
			if err := p.Compact(); err != nil {
				t.Fatal(err)
			}
			write()
			p.mustRead(t, "k")
			f.mustKnowPeers(p)
			mustStop(t, p)
			d.damage(t, filepath.Join(p.cfg.DataDir, "raft"))
			write() // While it is away.
			before := asides(t, p.cfg.DataDir)
			healed := f.mustStartAgain(p)
			if got := healed.mustRead(t, "k"); got != written {
				t.Errorf("it reads %d, want %d", got, written)
			}
			f.awaitVoters(3)
			gone := d.name == "the whole replica is gone"
			if after := asides(t, p.cfg.DataDir); !gone && slices.Equal(before, after) {
				t.Errorf("nothing was set aside: %v", after)
			}
		})
	}
	for _, p := range f.peers {
		if kept := asides(t, p.cfg.DataDir); len(kept) > 3 {
			t.Errorf("%s keeps %d damaged replicas", p.cfg.Name, len(kept))
		}
		p.FailSnapshot()
		eventually(t, "what was set aside makes room", func() bool { return len(asides(t, p.cfg.DataDir)) == 0 })
	}
}

// mustHoldAside makes a server run out of disk space while no other server is
// known to have the state: it keeps the damaged replica that it has set aside.
func mustHoldAside(t *testing.T, p *peer) {
	t.Helper()
	dir := filepath.Join(p.cfg.DataDir, "quarantine", "20260102T030405.000Z")
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "raft"), 0o700),
		os.WriteFile(filepath.Join(dir, "damage"), []byte(disk.ErrCorrupt.Error()), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	p.DropDamaged()
	if len(asides(t, p.cfg.DataDir)) != 1 {
		t.Error("the only copy that was left is gone")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// wornDisk cuts its server off after a number of entries.
type wornDisk struct {
	raft.LogStore
	left atomic.Int64
	cut  func()
}

func (d *wornDisk) StoreLogs(logs []*raft.Log) error {
	err := d.LogStore.StoreLogs(logs)
	if left := d.left.Add(-int64(len(logs))); left <= 0 && left+int64(len(logs)) > 0 {
		d.cut()
	}
	return err
}

// TestRejoiningServerDoesNotElectItself damages the server that bootstrapped
// the cluster, and cuts it off while it receives the log again. At that point
// the log names it as the only voter.
func TestRejoiningServerDoesNotElectItself(t *testing.T) {
	f := mustFleet(t, 1, nil)
	founder := f.peers[0]
	for i := range int64(200) {
		founder.mustPropose(t, toyCommand{Op: fmt.Sprint("alone", i), Key: "k", Value: i})
	}
	mustHoldAside(t, founder)
	f.mustAdd()
	f.mustAdd()
	f.awaitVoters(3)
	for i := range int64(5) {
		founder.mustPropose(t, toyCommand{Op: fmt.Sprint("together", i), Key: "k", Value: 1000 + i})
	}
	f.mustKnowPeers(founder)
	mustStop(t, founder)
	damages[2].damage(t, filepath.Join(founder.cfg.DataDir, "raft"))
	cfg := founder.again()
	cutOff := make(chan struct{})
	cfg.WrapStore(func(s raft.LogStore) raft.LogStore {
		d := &wornDisk{LogStore: s, cut: func() {
			f.wire.isolate(cfg.Name, true)
			close(cutOff)
		}}
		d.left.Store(100)
		return d
	})
	f.peers[0] = f.mustStart(cfg)
	select {
	case <-cutOff:
	case <-time.After(30 * time.Second):
		t.Fatal("it was sent no entries")
	}
	for range 30 { // Ten times the time after which a voter stands for election.
		if f.peers[0].IsLeader() {
			t.Fatal("it has elected itself, with a log of before the others were there")
		}
		<-time.After(100 * time.Millisecond)
	}
	if leader, known := f.peers[0].Leader(); known {
		t.Errorf("it says that %s leads, of which it has not heard for three seconds", leader)
	}
	if !f.peers[0].Behind() || f.peers[0].MayVote() {
		t.Error("it would vote, with a log of before the others were there")
	}
	f.wire.isolate(cfg.Name, false)
	f.awaitVoters(3)
	if got := f.peers[0].mustRead(t, "k"); got != 1004 {
		t.Errorf("it reads %d", got)
	}
	if f.peers[0].Behind() || !f.peers[0].MayVote() {
		t.Error("it votes, and is still behind")
	}
}

// asides returns the paths of the damage reports of the replicas that were set
// aside, and checks the reports.
func asides(t *testing.T, dataDir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dataDir, "quarantine", "*", "damage"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // It is being removed.
		}
		if err != nil || !strings.Contains(string(text), disk.ErrCorrupt.Error()) {
			t.Errorf("%s says %q, %v", path, text, err)
		}
	}
	return all
}

// mustKnowPeers waits until a server has saved the addresses of the others.
func (f *fleet) mustKnowPeers(p *peer) {
	f.t.Helper()
	eventually(f.t, "the addresses of the others to be saved", func() bool {
		text, err := os.ReadFile(filepath.Join(p.cfg.DataDir, "node.json"))
		for _, other := range f.peers {
			known := strings.Contains(string(text), other.ID().String()) && strings.Contains(string(text), other.RPCAddress())
			if other != p && !known {
				return false
			}
		}
		return err == nil
	})
}

func mustStop(t *testing.T, p *peer) {
	t.Helper()
	if err := p.stop(); err != nil {
		t.Fatalf("stop %s: %v", p.cfg.Name, err)
	}
}

// again returns the configuration for restarting a peer at the same address.
func (p *peer) again() cluster.Config {
	cfg := p.cfg
	cfg.Bootstrap, cfg.JoinToken, cfg.JoinHosts = false, "", nil
	cfg.Listen, cfg.GossipListen = p.RPCAddress(), p.Gossip().Address()
	return cfg
}

// mustStartAgain starts a stopped peer at the same address.
func (f *fleet) mustStartAgain(p *peer) *peer {
	f.t.Helper()
	at := slices.Index(f.peers, p)
	f.peers[at] = f.mustStart(p.again())
	return f.peers[at]
}

// TestDamagedMajorityStops loses the replicas of two of three voters at once.
// Neither rejoins by itself, whichever starts first: entries acknowledged by
// only one of them and the third may be lost. An operator recovers the cluster
// from the intact server.
func TestDamagedMajorityStops(t *testing.T) {
	f := mustFleet(t, 3, func(c *cluster.Config) { c.RejoinFor = 3 * time.Second })
	for i := range int64(5) {
		f.leader().mustPropose(t, toyCommand{Op: fmt.Sprint(marker, i), Key: "k", Value: i})
	}
	for _, p := range f.peers {
		p.mustRead(t, "k")
		f.mustKnowPeers(p)
	}
	leader := f.leader()
	intact := f.follower(leader)
	var damaged []*peer
	for _, p := range f.peers {
		if p != intact {
			damaged = append(damaged, p)
			mustStop(t, p)
		}
	}
	mustStop(t, intact)
	damages[0].damage(t, filepath.Join(damaged[0].cfg.DataDir, "raft"))
	damages[2].damage(t, filepath.Join(damaged[1].cfg.DataDir, "raft"))
	intact = f.mustStartAgain(intact)
	var starts sync.WaitGroup
	for _, p := range damaged {
		starts.Go(func() { f.mustNotStart(t, p.again(), "raft recover") })
	}
	starts.Wait()
	voters := 0
	for _, s := range intact.Servers() {
		if s.Voter {
			voters++
		}
	}
	if voters != 3 || intact.IsLeader() {
		t.Errorf("the intact one has %d voters and leads: %v", voters, intact.IsLeader())
	}
	mustHoldAside(t, intact)
	for _, p := range damaged {
		if got := asides(t, p.cfg.DataDir); len(got) != 0 {
			t.Errorf("%s has set aside %v", p.cfg.Name, got)
		}
	}

	mustStop(t, intact)
	mustRecover(t, intact)
	f.mustStartAgain(intact)
	for _, p := range damaged {
		p.cfg.RejoinFor = 0 // The limit was for the failing starts.
		f.mustStartAgain(p)
	}
	f.awaitVoters(3)
	for _, p := range f.peers {
		if got := p.mustRead(t, "k"); got != 4 {
			t.Errorf("after the recovery %s reads %d", p.cfg.Name, got)
		}
	}
}

// mustRecover makes a stopped server continue as the only voter.
func mustRecover(t *testing.T, p *peer) {
	t.Helper()
	stopped, err := replica.OpenStopped(p.cfg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	defer stopped.Close()
	if _, err := stopped.Recover(replica.Machine{FSM: newToyFSM()}, []compute.NodeID{stopped.Node()}); err != nil {
		t.Fatal(err)
	}
}

// mustNotStart opens a damaged server, which must be refused with a remedy.
func (f *fleet) mustNotStart(t *testing.T, cfg cluster.Config, words string) {
	t.Helper()
	cfg.FSM = newToyFSM()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := cluster.Open(ctx, cfg)
	if err == nil {
		c.Close()
		t.Errorf("%s started", cfg.Name)
		return
	}
	if !errors.Is(err, disk.ErrCorrupt) || !strings.Contains(err.Error(), words) ||
		!strings.Contains(err.Error(), "snapshot restore") {
		t.Errorf("%s is refused with %q", cfg.Name, err)
	}
}

// TestDamagedReplicaStaysOutWhileAnotherVoterIsAway asks a leader that has just
// lost another voter as well: it must not remove the vote on its own.
func TestDamagedReplicaStaysOutWhileAnotherVoterIsAway(t *testing.T) {
	f := mustFleet(t, 3, func(c *cluster.Config) { c.RejoinFor = 3 * time.Second })
	f.leader().mustPropose(t, toyCommand{Op: marker, Key: "k", Value: 1})
	leader := f.leader()
	var others []*peer
	for _, p := range f.peers {
		p.mustRead(t, "k")
		if p != leader {
			others = append(others, p)
		}
	}
	damaged, away := others[0], others[1]
	f.mustKnowPeers(damaged)
	mustStop(t, damaged)
	damages[0].damage(t, filepath.Join(damaged.cfg.DataDir, "raft"))
	mustStop(t, away)
	f.mustNotStart(t, damaged.again(), "raft recover")

	away = f.mustStartAgain(away)
	damaged.cfg.RejoinFor = 0 // The limit was for the failing start.
	f.mustStartAgain(damaged)
	f.awaitVoters(3)
	if got := away.mustRead(t, "k"); got != 1 {
		t.Errorf("it reads %d", got)
	}
}
