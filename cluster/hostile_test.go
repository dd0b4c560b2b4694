package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/cluster"
	"berth/compute"
)

// mustCopy replaces a directory with a copy of another one.
func mustCopy(t *testing.T, from, to string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
		t.Fatal(err)
	}
}

// TestForeignDirectories starts a server with foreign files in its data
// directory. A directory of another cluster is refused by name and not changed.
// One of another server of the same cluster is replaced.
func TestForeignDirectories(t *testing.T) {
	other := mustFleet(t, 1, nil)
	other.peers[0].mustPropose(t, toyCommand{Op: "there", Key: "k", Value: 99})
	mustStop(t, other.peers[0])
	theirs, foreign := other.peers[0].cfg.DataDir, other.peers[0].ClusterID().String()

	f := mustFleet(t, 3, nil)
	f.leader().mustPropose(t, toyCommand{Op: "here", Key: "k", Value: 1})
	p := f.follower(f.leader())
	third := f.follower(f.leader())
	for _, q := range f.peers {
		q.mustRead(t, "k")
		if q != p && q != f.leader() {
			third = q
		}
	}
	f.mustKnowPeers(p)
	mustStop(t, p)
	own := p.cfg.DataDir
	kept := t.TempDir()
	mustCopy(t, own, kept)
	inRaft := func(name string) string { return filepath.Join(own, "raft", name) }
	for _, test := range []struct {
		name   string
		put    func()
		edit   func(*cluster.Config)
		advice []string
	}{
		{
			name:   "the replica of another cluster",
			put:    func() { mustCopy(t, filepath.Join(theirs, "raft"), inRaft("")) },
			advice: []string{"of cluster " + foreign, "of cluster " + p.ClusterID().String(), "move this one away"},
		},
		{
			name: "the log of another cluster",
			put: func() {
				text, err := os.ReadFile(filepath.Join(theirs, "raft", "raft.db"))
				if err = errors.Join(err, os.RemoveAll(inRaft("tail")), os.WriteFile(inRaft("raft.db"), text, 0o600)); err != nil {
					t.Fatal(err)
				}
			},
			advice: []string{"of cluster " + foreign, "put back the directory"},
		},
		{
			name: "a state of another cluster",
			put:  func() {},
			edit: func(c *cluster.Config) {
				c.StateCluster = func() compute.UUID { return other.peers[0].ClusterID() }
			},
			advice: []string{"of cluster " + foreign, "move this one away"},
		},
		{
			name:   "the authority of another cluster",
			put:    func() { mustCopy(t, filepath.Join(theirs, "pki"), filepath.Join(own, "pki")) },
			advice: []string{"is of cluster " + foreign, "copy ca.crt and, on a server, ca.key"},
		},
		{
			name: "a peers file",
			put: func() {
				if err := os.WriteFile(inRaft("peers.json"), []byte("[]"), 0o600); err != nil {
					t.Fatal(err)
				}
			},
			advice: []string{inRaft("peers.json"), "remove it", "berth admin raft recover"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.put()
			cfg := p.again()
			if test.edit != nil {
				test.edit(&cfg)
			}
			err := f.refusal(cfg)
			for _, word := range test.advice {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
			if aside, _ := filepath.Glob(filepath.Join(own, "quarantine", "*")); len(aside) != 0 {
				t.Errorf("set aside: %v", aside)
			}
			mustCopy(t, kept, own)
		})
	}
	t.Run("the replica of another server", func(t *testing.T) {
		mustStop(t, third)
		mustCopy(t, filepath.Join(third.cfg.DataDir, "raft"), inRaft(""))
		f.mustStartAgain(third)
		p := f.mustStartAgain(p)
		f.awaitVoters(3)
		if got := p.mustRead(t, "k"); got != 1 {
			t.Errorf("it reads %d", got)
		}
		if got := asides(t, own); len(got) != 1 {
			t.Errorf("set aside: %v", got)
		}
	})
}

// TestRefusedSnapshot starts a server whose snapshot has the right checksum but
// is refused by the state machine. That is damage, unless the snapshot is of a
// newer version; then nothing may change.
func TestRefusedSnapshot(t *testing.T) {
	f := mustFleet(t, 3, nil)
	for i := range int64(5) {
		f.leader().mustPropose(t, toyCommand{Op: fmt.Sprint(i), Key: "k", Value: i})
	}
	p := f.follower(f.leader())
	p.mustRead(t, "k")
	if err := p.Compact(); err != nil {
		t.Fatal(err)
	}
	f.mustKnowPeers(p)
	mustStop(t, p)

	f.refuse = func(toyState) error {
		return compute.Errorf(compute.CodeConflict, "The state has format 9: install a newer one.")
	}
	if err := f.refusal(p.again()); !strings.Contains(err.Error(), "install a newer one") {
		t.Errorf("refused with %v", err)
	}
	if got := asides(t, p.cfg.DataDir); len(got) != 0 {
		t.Errorf("set aside: %v", got)
	}

	var once sync.Once
	f.refuse = func(toyState) (err error) {
		once.Do(func() { err = errors.New("an invariant does not hold") })
		return err
	}
	p = f.mustStartAgain(p)
	f.awaitVoters(3)
	if got := p.mustRead(t, "k"); got != 4 {
		t.Errorf("it reads %d", got)
	}
	aside := asides(t, p.cfg.DataDir)
	if len(aside) != 1 {
		t.Fatalf("set aside: %v", aside)
	}
	if text, err := os.ReadFile(aside[0]); err != nil || !strings.Contains(string(text), "an invariant does not hold") {
		t.Errorf("it says %q, %v", text, err)
	}

	// The version itself may contain the flipped bit.
	f.leader().mustPropose(t, toyCommand{Op: "last", Key: "k", Value: 5})
	p.mustRead(t, "k")
	if err := p.Compact(); err != nil {
		t.Fatal(err)
	}
	f.mustKnowPeers(p)
	mustStop(t, p)
	for _, dir := range mustSnapshots(t, filepath.Join(p.cfg.DataDir, "raft")) {
		mustFlip(t, filepath.Join(dir, "state.bin"), "last")
	}
	f.refuse = func(state toyState) error {
		if _, whole := state.Ops["last"]; whole || state.Values["k"] != 5 {
			return nil
		}
		return compute.Errorf(compute.CodeConflict, "The state has format 9: install a newer one.")
	}
	p = f.mustStartAgain(p)
	if got := p.mustRead(t, "k"); got != 5 {
		t.Errorf("after a flipped bit it reads %d", got)
	}
	if got := asides(t, p.cfg.DataDir); len(got) == len(aside) {
		t.Error("nothing was set aside")
	}
}

// TestRefusedSnapshotBeforeAnother checks the same with a log that reaches back
// to an older snapshot.
func TestRefusedSnapshotBeforeAnother(t *testing.T) {
	f := mustFleet(t, 1, nil)
	p := f.peers[0]
	for i := range int64(3) {
		p.mustPropose(t, toyCommand{Op: fmt.Sprint(i), Key: "k", Value: i})
		if err := p.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	f.refuse = func(s toyState) error {
		if s.Values["k"] == 2 {
			return errors.New("an invariant does not hold")
		}
		return nil
	}
	p = f.mustRestart(0)
	if got := p.mustRead(t, "k"); got != 2 {
		t.Errorf("it reads %d", got)
	}
	if got := asides(t, p.cfg.DataDir); len(got) != 1 {
		t.Errorf("set aside: %v", got)
	}
}

// words records the log output.
type words struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *words) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(data)
}

func (w *words) say(word string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.text.String(), word)
}

// TestClocksThatAreOff lets nodes join whose clocks are an hour ahead and
// behind. They work, also as leaders, and both they and the operator get a
// warning. A node whose clock is days off is refused with a remedy.
func TestClocksThatAreOff(t *testing.T) {
	shifts := []time.Duration{0, time.Hour, -time.Hour}
	logs := make([]*words, len(shifts))
	var stamps atomic.Int64
	f := newFleet(t, nil)
	f.edit = func(c *cluster.Config) {
		i := len(f.peers)
		logs[i] = new(words)
		c.Logger = slog.New(slog.NewTextHandler(logs[i], nil))
		c.Now = func() time.Time { return time.Now().Add(shifts[i]) }
		c.Preamble = func(term uint64, at time.Time) []byte {
			if off := time.Since(at.Round(0)); !at.IsZero() && compute.ClockOff(off) {
				t.Errorf("the leader of term %d stamps an entry %s", term, compute.AheadText(-off))
			}
			stamps.Add(1)
			return termFrame(term, at)
		}
	}
	for range shifts {
		f.mustAdd()
	}
	f.awaitVoters(len(shifts))
	leader := f.leader()
	for i, p := range f.peers {
		if err := p.Reissue(); err != nil { // As at a renewal.
			t.Fatal(err)
		}
		if p == leader {
			continue
		}
		for _, ends := range [][2]*peer{{leader, p}, {p, leader}} {
			conn, err := ends[0].DialRaft(ends[1].ID())
			if err != nil {
				t.Fatalf("with a clock %s: %v", compute.AheadText(shifts[i]), err)
			}
			conn.Close()
		}
		eventually(t, "the node to be told that its clock is off", func() bool {
			return logs[i].say("machine clock is wrong, using cluster time") && logs[i].say("timedatectl set-ntp true")
		})
		if off := p.Clock().Now().Sub(leader.Clock().Now()).Abs(); compute.ClockOff(off) {
			t.Errorf("it reckons with a time that is %s apart", off)
		}
		eventually(t, "the leader to know of it", func() bool {
			found, err := p.Health(t.Context())
			for _, c := range found.Clocks {
				if c.Node == p.ID() && (c.Ahead-shifts[i]).Abs() < compute.ClockTolerance {
					return err == nil
				}
			}
			return false
		})
	}
	if got := mustRoundTrip(t, f.peers[2], f.peers[1]); got != 1 {
		t.Errorf("read %d", got)
	}
	for i, p := range f.peers[1:] { // They lead, an hour ahead and behind, and time advances.
		if _, err := f.leader().Transfer(t.Context(), p.ID()); err != nil {
			t.Fatal(err)
		}
		before := stamps.Load()
		if got := mustRoundTrip(t, p, leader); got != 1 || stamps.Load() == before {
			t.Errorf("read %d after %d entries", got, stamps.Load()-before)
		}
		for _, q := range f.peers {
			if off := time.Since(q.Clock().Now().Round(0)); compute.ClockOff(off) {
				t.Errorf("%s leads: a node reckons with a time %s", compute.AheadText(shifts[i+1]), compute.AheadText(-off))
			}
		}
	}

	for _, shift := range []time.Duration{-72 * time.Hour, 90 * time.Hour} {
		cfg := f.config("days off")
		cfg.FSM, cfg.JoinHosts = newToyFSM(), []string{leader.RPCAddress()}
		cfg.JoinToken = f.mustToken(compute.RoleServer, 1).String()
		cfg.Now = func() time.Time { return time.Now().Add(shift) }
		log := new(words)
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { // It retries, because the operator may set the clock.
			c, err := cluster.Open(ctx, cfg)
			if err == nil {
				err = errors.Join(errors.New("it has joined"), c.Close())
			}
			ended <- err
		}()
		eventually(t, "a node with a clock "+compute.AheadText(shift)+" to be told", func() bool {
			return log.say("set this clock")
		})
		cancel()
		if err := <-ended; strings.Contains(err.Error(), "it has joined") {
			t.Errorf("with a clock %s: %v", compute.AheadText(shift), err)
		}
	}
}

// TestReplayedJoin joins again with a used token, as the node that used it.
func TestReplayedJoin(t *testing.T) {
	f := mustFleet(t, 1, nil)
	cfg := f.config("n2")
	cfg.JoinHosts, cfg.JoinToken = []string{f.peers[0].RPCAddress()}, f.mustToken(compute.RoleServer, 1).String()
	p := f.mustStart(cfg)
	f.peers = append(f.peers, p)
	f.awaitVoters(2)
	eventually(t, "the leader to have heard of the node", func() bool {
		found, err := p.Health(t.Context())
		return err == nil && slices.ContainsFunc(found.Clocks, func(c cluster.NodeClock) bool { return c.Node == p.ID() })
	})
	replay := f.config("replay")
	replay.NodeID, replay.JoinHosts, replay.JoinToken = p.ID(), cfg.JoinHosts, cfg.JoinToken
	err := f.refusal(replay)
	if compute.CodeOf(err) != compute.CodeConflict || !strings.Contains(err.Error(), "is up") ||
		!strings.Contains(err.Error(), "a join token of its own") {
		t.Errorf("refused with %v", err)
	}
}
