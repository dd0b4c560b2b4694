package storage

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"berth/compute"
)

// TestHoldsNamesBlobs asks a node for more blobs than one question names.
func TestHoldsNamesBlobs(t *testing.T) {
	c := newCluster(t, 2, 1)
	asked := make([]compute.Hash, 2*maxAsked+1)
	for i := range asked {
		asked[i] = compute.Hash{1, byte(i >> 8), byte(i)}
	}
	for _, i := range []int{0, maxAsked, 2 * maxAsked} {
		var err error
		if asked[i], err = c.nodes[nodeID(1)].cfg.Store.Put(fmt.Appendf(nil, "blob %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	h, err := c.nodes[nodeID(0)].holds(t.Context(), nodeID(1), asked)
	if err != nil || h.full || len(h.have) != 3 || !h.have[asked[0]] || !h.have[asked[maxAsked]] || !h.have[asked[2*maxAsked]] {
		t.Errorf("it has %d, full %t, %v", len(h.have), h.full, err)
	}
	for _, q := range []request{{op: opHolds, size: 31}, {op: opHolds, size: 32 * (maxAsked + 1)}, {op: opHolds + 1}} {
		if _, err := c.nodes[nodeID(0)].ask(t.Context(), nodeID(1), q, make([]byte, q.size)); err == nil {
			t.Errorf("operation %d with %d bytes is answered", q.op, q.size)
		}
	}
}

// TestFullDiskIsReported holds that a node reports its full disk until it has space for a blob as
// large as the one that it did not take.
func TestFullDiskIsReported(t *testing.T) {
	c := newCluster(t, 2, 1)
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small disk")
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=640k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	small, asker := c.nodes[nodeID(1)], c.nodes[nodeID(0)]
	small.cfg.Store = mustOpen(t, dir)
	filler := filepath.Join(dir, "filler")
	put := func(bytes int, want compute.Code, full bool) {
		t.Helper()
		_, err := small.cfg.Store.Put(slices.Repeat([]byte{byte(bytes)}, bytes))
		if got := compute.CodeOf(err); err != nil && got != want || (err == nil) != (want == "") {
			t.Fatalf("%d bytes: %v", bytes, err)
		}
		if got := asker.FullNodes(t.Context(), nil); slices.Contains(got, nodeID(1)) != full {
			t.Errorf("after %d bytes %v are full", bytes, got)
		}
	}
	put(70_000, "", false)
	if err := os.WriteFile(filler, make([]byte, 384<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	put(300_000, compute.CodeNoSpace, true)
	put(20_000, "", true)
	if small.TrySpace(); !small.Full() {
		t.Error("a full disk has space")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	put(10_000, "", true)
	if small.TrySpace(); small.Full() {
		t.Error("the disk counts as full although it has space")
	}
	put(300_001, "", false)
}

// TestGetFindsBlobThatMoves reads a blob while it moves from the node that is asked last to the
// one that was asked first.
func TestGetFindsBlobThatMoves(t *testing.T) {
	c := newCluster(t, 3, 1)
	data := []byte("it moves")
	hash, err := c.nodes[nodeID(0)].Put(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	order := owners(hash, c.list)
	first, reader, last := c.nodes[order[0].ID], c.nodes[order[1].ID], c.nodes[order[2].ID]
	if _, err := last.cfg.Store.Put(data); err != nil || first.cfg.Store.Delete(hash) != nil {
		t.Fatal(err)
	}
	c.fault[order[2].ID] = func(conn net.Conn, _ []byte) error {
		_, err := first.cfg.Store.Put(data)
		if err == nil {
			err = last.cfg.Store.Delete(hash)
		}
		if err == nil {
			_, err = conn.Write(encodeTestResult(nil, notHere(hash)))
		}
		return err
	}
	if got, err := reader.Get(t.Context(), hash); err != nil || string(got) != string(data) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestTrimKeepsWhatOthersWant holds that a node which is configured for fewer copies than another
// one removes none that the other one wants.
func TestTrimKeepsWhatOthersWant(t *testing.T) {
	c := newCluster(t, 4, 2)
	data := []byte("data")
	for _, n := range c.nodes {
		if _, err := n.cfg.Store.Put(data); err != nil {
			t.Fatal(err)
		}
	}
	hash := compute.Hash(sha256.Sum256(data))
	order := owners(hash, c.list)
	trim := func(i, want int) {
		t.Helper()
		if n, err := c.nodes[order[i].ID].Trim(t.Context(), []compute.Hash{hash}, -time.Hour); err != nil || n != want {
			t.Errorf("node %d of the order removes %d, %v, want %d", i, n, err, want)
		}
	}
	for _, other := range []int{0, 3} { // Before it in the order, and behind it.
		c.nodes[order[other].ID].cfg.Replicas = 3
		trim(2, 0)
		c.nodes[order[other].ID].cfg.Replicas = 2
	}
	trim(3, 1)
	trim(2, 1)
	trim(1, 0)
}

// TestSilentNodesHoldUpNoQuestion asks nodes of which one does not answer. The rest is answered without it.
func TestSilentNodesHoldUpNoQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 2)
		hash, err := c.nodes[nodeID(1)].cfg.Store.Put([]byte("data"))
		if err != nil {
			t.Fatal(err)
		}
		c.fault[nodeID(2)] = func(conn net.Conn, _ []byte) error {
			_, err := conn.Read(make([]byte, 1))
			<-t.Context().Done()
			return err
		}
		begun := time.Now()
		full := c.nodes[nodeID(0)].FullNodes(t.Context(), nil)
		if took := time.Since(begun); len(full) != 0 || took > fullTime {
			t.Errorf("full are %v, after %s", full, took)
		}
		begun = time.Now()
		copies := c.nodes[nodeID(0)].Copies(t.Context(), []compute.Hash{hash}, nil)
		if took := time.Since(begun); copies[hash] != 1 || took > holdsTime {
			t.Errorf("%d copies, after %s", copies[hash], took)
		}
	})
}
