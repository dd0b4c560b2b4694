package cluster_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"berth/cluster"
)

// mustFlip flips a bit of each occurrence of text in a file that is in use, and
// returns their number.
func mustFlip(t *testing.T, path, text string) (found int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; ; found++ {
		at := bytes.Index(b[from:], []byte(text))
		if at < 0 {
			return found
		}
		from += at + 1
		if _, err := f.WriteAt([]byte{text[0] ^ 1}, int64(from-1)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestScrubFindsWhatNobodyReads damages a snapshot, then an entry, and then the
// memory of a running server. The snapshot is replaced at once. The others end
// the server. Its next start uses an empty replica, or reads its disk and
// reports the damage.
func TestScrubFindsWhatNobodyReads(t *testing.T) {
	var ended, flipped atomic.Bool
	f := newFleet(t, func(c *cluster.Config) {
		c.Fatal = func(error) { ended.Store(true) }
		c.CheckState = func(throttle func(int) error) error {
			if flipped.Load() {
				return errors.New("a bit has flipped")
			}
			return throttle(1 << 10)
		}
	})
	for range 3 {
		f.mustAdd()
	}
	f.awaitVoters(3)
	for i := range int64(5) {
		f.leader().mustPropose(t, toyCommand{Op: fmt.Sprint("before", i), Key: "k", Value: i})
	}
	p := f.follower(f.leader())
	p.mustRead(t, "k")
	if err := p.Compact(); err != nil {
		t.Fatal(err)
	}
	if err := p.ScrubOnce(t.Context()); err != nil {
		t.Fatalf("nothing is damaged: %v", err)
	}
	f.leader().mustPropose(t, toyCommand{Op: marker, Key: "k", Value: 9})
	p.mustRead(t, "k")

	raft := filepath.Join(p.cfg.DataDir, "raft")
	broken := mustSnapshots(t, raft)
	for _, dir := range broken {
		if mustFlip(t, filepath.Join(dir, "state.bin"), "before1") == 0 {
			t.Fatal("the snapshot has another content")
		}
	}
	if err := p.ScrubOnce(t.Context()); err != nil || ended.Load() {
		t.Fatalf("with a damaged snapshot: %v, ended: %v", err, ended.Load())
	}
	if left := mustSnapshots(t, raft); len(left) != 1 || slices.Contains(broken, left[0]) {
		t.Errorf("the snapshots are %v, after %v", left, broken)
	}
	if got := asides(t, p.cfg.DataDir); len(got) != 1 {
		t.Errorf("set aside: %v", got)
	}
	if err := p.ScrubOnce(t.Context()); err != nil {
		t.Errorf("after that: %v", err)
	}

	if mustFlip(t, filepath.Join(raft, "raft.db"), marker) == 0 {
		t.Fatal("the entry is not there")
	}
	if err := p.ScrubOnce(t.Context()); err == nil || !ended.Load() {
		t.Errorf("with a damaged entry: %v, ended: %v", err, ended.Load())
	}
	f.mustKnowPeers(p)
	mustStop(t, p)
	healed := f.mustStartAgain(p)
	if got := healed.mustRead(t, "k"); got != 9 {
		t.Errorf("it reads %d", got)
	}
	f.awaitVoters(3)

	ended.Store(false)
	flipped.Store(true)
	if err := healed.ScrubOnce(t.Context()); err == nil || !ended.Load() {
		t.Errorf("with a flipped bit in memory: %v, ended: %v", err, ended.Load())
	}
	flipped.Store(false)
	f.mustKnowPeers(healed)
	const wrong, aside = "berth_raft_damaged_states_total", "berth_raft_quarantine_bytes"
	for _, want := range []float64{1, 0} {
		mustStop(t, healed)
		metrics := prometheus.NewRegistry()
		healed.cfg.Registerer = metrics
		healed = f.mustStartAgain(healed)
		if got := healed.mustRead(t, "k"); got != 9 {
			t.Errorf("after that it reads %d", got)
		}
		if got := cluster.Metric(t, metrics, wrong); got != want {
			t.Errorf("at its next start %s is %v, want %v", wrong, got, want)
		}
		if got := cluster.Metric(t, metrics, aside); got <= 0 {
			t.Errorf("%s is %v, and %v are set aside", aside, got, asides(t, healed.cfg.DataDir))
		}
		if err := healed.ScrubOnce(t.Context()); err != nil { // It finds no fault in memory.
			t.Error(err)
		}
	}
	f.awaitVoters(3)
}

// mustSnapshots returns the directories of the snapshots.
func mustSnapshots(t *testing.T, raft string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(raft, "snapshots", "*"))
	if err != nil || len(all) == 0 {
		t.Fatalf("snapshots: %v, %v", all, err)
	}
	return slices.DeleteFunc(all, func(dir string) bool { return strings.HasSuffix(dir, ".tmp") })
}
