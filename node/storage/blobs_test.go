package storage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
)

// cluster is the Peers of nodes in one process.
type cluster struct {
	mu    sync.Mutex
	nodes map[compute.NodeID]*Blobs
	list  []Node
	fault map[compute.NodeID]func(net.Conn, []byte) error // Called instead of Serve.
	asked map[compute.NodeID]int
}

func nodeID(n int) compute.NodeID { return compute.NodeID{UUID: compute.UUID{14: 1, 15: byte(n)}} }

func newCluster(t testing.TB, n, replicas int) *cluster {
	t.Helper()
	c := &cluster{
		nodes: map[compute.NodeID]*Blobs{},
		fault: map[compute.NodeID]func(net.Conn, []byte) error{},
		asked: map[compute.NodeID]int{},
	}
	for i := range n {
		id := nodeID(i)
		c.list = append(c.list, Node{ID: id, Up: true})
		c.nodes[id] = New(Config{
			Self: id, Store: mustOpen(t, t.TempDir()), Peers: c, Nodes: func() []Node { return c.list },
			Replicas: replicas, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		})
	}
	return c
}

func (c *cluster) Open(ctx context.Context, node compute.NodeID, req []byte) (io.ReadWriteCloser, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[node]++
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		if fault := c.fault[node]; fault != nil {
			_ = fault(far, req) // The other end sees it.
			return
		}
		_ = c.nodes[node].Serve(ctx, req, far) // As above.
	}()
	return near, nil
}

// have returns the nodes whose disks have the blob.
func (c *cluster) have(hash compute.Hash) (ids []compute.NodeID) {
	for _, n := range c.list {
		if c.nodes[n.ID].cfg.Store.Has(hash) {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

func refuse(net.Conn, []byte) error { return errors.New("refused") }

func full(conn net.Conn, _ []byte) error {
	_, err := conn.Write(encodeTestResult(nil, compute.Errorf(compute.CodeNoSpace, "The disk of this node is full.")))
	return err
}

func TestPutIsOnTwoNodes(t *testing.T) {
	c := newCluster(t, 5, 2)
	for i := range 40 {
		data := fmt.Appendf(nil, "blob %d", i)
		hash, free, err := c.nodes[nodeID(i%5)].Lend(t.Context(), data)
		if err != nil || !free {
			t.Fatalf("free is %v, %v", free, err)
		}
		want := owners(hash, c.list)[:2]
		got := c.have(hash)
		if len(got) != 2 || got[0] != want[0].ID && got[0] != want[1].ID || got[1] != want[0].ID && got[1] != want[1].ID {
			t.Errorf("blob %d is on %v, want %v", i, got, want)
		}
		for _, n := range c.list {
			if read, err := c.nodes[n.ID].Get(t.Context(), hash); err != nil || !bytes.Equal(read, data) {
				t.Errorf("blob %d from node %s: %q, %v", i, n.ID, read, err)
			}
		}
	}
}

func TestPutContinuesWithTheNextNode(t *testing.T) {
	for name, fault := range map[string]func(net.Conn, []byte) error{"refused": refuse, "full": full} {
		c := newCluster(t, 4, 2)
		data := []byte("data of " + name)
		order := owners(sha256.Sum256(data), c.list)
		c.fault[order[0].ID], c.fault[order[1].ID] = fault, fault
		hash, free, err := c.nodes[order[3].ID].Lend(t.Context(), data)
		if err != nil || len(c.have(hash)) != 2 || free {
			t.Errorf("%s: on %v, free is %v, %v", name, c.have(hash), free, err)
		}
	}
}

func TestPutReportsTooFewCopies(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault func(net.Conn, []byte) error
		want  compute.Code
	}{
		{"refused", refuse, compute.CodeUnavailable},
		{"full", full, compute.CodeNoSpace},
	} {
		c := newCluster(t, 3, 2)
		c.fault[nodeID(1)], c.fault[nodeID(2)] = test.fault, test.fault
		_, err := c.nodes[nodeID(0)].Put(t.Context(), []byte("data"))
		if compute.CodeOf(err) != test.want {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
		}
	}
	c := newCluster(t, 3, 2)
	c.list[1].Up, c.list[2].Up = false, false
	if _, err := c.nodes[nodeID(0)].Put(t.Context(), []byte("data")); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("others down: got %v, want unavailable", err)
	}
	if len(c.asked) != 0 {
		t.Errorf("asked %v, which are down", c.asked)
	}
	_, err := c.nodes[nodeID(0)].Put(t.Context(), make([]byte, MaxBlob+1))
	if compute.CodeOf(err) != compute.CodeTooLarge {
		t.Errorf("got %v for too large a blob", err)
	}
}

func TestPutOnASingleNode(t *testing.T) {
	c := newCluster(t, 1, 2)
	hash, err := c.nodes[nodeID(0)].Put(t.Context(), []byte("data"))
	if err != nil || len(c.have(hash)) != 1 {
		t.Errorf("on %v, %v", c.have(hash), err)
	}
}

func TestLargestBlobTravels(t *testing.T) {
	c := newCluster(t, 2, 2)
	data := bytes.Repeat([]byte("0123456789abcdef"), MaxBlob/16)
	hash, err := c.nodes[nodeID(0)].Put(t.Context(), data)
	if err != nil || len(c.have(hash)) != 2 {
		t.Fatalf("on %v, %v", c.have(hash), err)
	}
	if err := c.nodes[nodeID(0)].cfg.Store.Delete(hash); err != nil {
		t.Fatal(err)
	}
	if got, err := c.nodes[nodeID(0)].Get(t.Context(), hash); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// TestGetHeals damages or removes any copy: a get returns the bytes and
// restores the copy.
func TestGetHeals(t *testing.T) {
	for _, reader := range []int{0, 1, 2} { // In the order of the owners.
		for _, victim := range []int{0, 1} {
			c := newCluster(t, 3, 2)
			data := []byte("precious")
			hash, err := c.nodes[nodeID(0)].Put(t.Context(), data)
			if err != nil {
				t.Fatal(err)
			}
			order := owners(hash, c.list)
			damage(t, c.nodes[order[victim].ID].cfg.Store, hash)
			if got, err := c.nodes[order[reader].ID].Get(t.Context(), hash); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("reader %d, victim %d: got %q, %v", reader, victim, got, err)
			}
			if reader == 2 && victim == 1 || reader == 0 && victim == 1 {
				continue // The damaged copy was not needed.
			}
			got, err := c.nodes[order[victim].ID].cfg.Store.Get(hash)
			if reader == 1 && victim == 0 {
				continue // Read from its own disk.
			}
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("reader %d, victim %d: not healed: %v", reader, victim, err)
			}
		}
	}
}

// TestGetChecksReceivedBytes refuses wrong bytes from a node.
func TestGetChecksReceivedBytes(t *testing.T) {
	c := newCluster(t, 3, 2)
	data := []byte("precious")
	hash, err := c.nodes[nodeID(0)].Put(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	order := owners(hash, c.list)
	c.fault[order[0].ID] = func(conn net.Conn, _ []byte) error {
		_, err := conn.Write(encodeTestResult([]byte("poison"), nil))
		return err
	}
	if got, err := c.nodes[order[2].ID].Get(t.Context(), hash); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %q, %v", got, err)
	}
	c.fault[order[1].ID] = c.fault[order[0].ID]
	if _, err := c.nodes[order[2].ID].Get(t.Context(), hash); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("got %v, want unavailable", err)
	}
}

func TestGetMissingBlob(t *testing.T) {
	c := newCluster(t, 3, 2)
	hash := compute.Hash(sha256.Sum256([]byte("never put")))
	if _, err := c.nodes[nodeID(0)].Get(t.Context(), hash); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("got %v, want not_found", err)
	}
	c.fault[nodeID(2)] = refuse
	if _, err := c.nodes[nodeID(0)].Get(t.Context(), hash); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("got %v while one node does not answer, want unavailable", err)
	}
}

// TestHangingNode checks that a hanging node delays nobody for long.
func TestHangingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 2)
		hang := func(conn net.Conn, _ []byte) error {
			_, err := io.Copy(io.Discard, conn)
			return err
		}
		data := []byte("data")
		hash, err := c.nodes[nodeID(0)].Put(t.Context(), data)
		if err != nil {
			t.Fatal(err)
		}
		order := owners(hash, c.list)
		c.fault[order[0].ID] = hang
		start := time.Now()
		if _, err := c.nodes[order[2].ID].Get(t.Context(), hash); err != nil {
			t.Errorf("get: %v", err)
		}
		if took := time.Since(start); took != getHedge {
			t.Errorf("get took %v of the bubble's time, want %v", took, getHedge)
		}
		start = time.Now()
		if _, free, err := c.nodes[order[2].ID].Lend(t.Context(), data); err != nil || free {
			t.Errorf("put: free is %v while a node hangs, %v", free, err)
		}
		if took := time.Since(start); took != putHedge {
			t.Errorf("put took %v of the bubble's time, want %v", took, putHedge)
		}
	})
}

func TestCallerCancels(t *testing.T) {
	c := newCluster(t, 3, 2)
	hash, err := c.nodes[nodeID(0)].Put(t.Context(), []byte("data"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, n := range c.list {
		c.fault[n.ID] = func(net.Conn, []byte) error {
			cancel()
			<-t.Context().Done()
			return nil
		}
	}
	outsider := owners(hash, c.list)[2].ID
	if _, err := c.nodes[outsider].Get(ctx, hash); !errors.Is(err, context.Canceled) {
		t.Errorf("get: got %v", err)
	}
	if _, err := c.nodes[outsider].Put(ctx, []byte("data")); !errors.Is(err, context.Canceled) {
		t.Errorf("put: got %v", err)
	}
}

func TestServeChecksReceivedBytes(t *testing.T) {
	c := newCluster(t, 1, 1)
	hash := compute.Hash(sha256.Sum256([]byte("data")))
	for _, test := range []struct {
		name string
		req  []byte
		data string
		want compute.Code
	}{
		{"garbage", []byte("GET / HTTP/1.1"), "", compute.CodeInvalid},
		{"unknown operation", request{op: 9, hash: hash}.encode(), "", compute.CodeInvalid},
		{"too large", request{op: opPut, hash: hash, size: MaxBlob + 1}.encode(), "", compute.CodeTooLarge},
		{"other bytes", request{op: opPut, hash: hash, size: 4}.encode(), "atad", compute.CodeInvalid},
	} {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			_ = c.nodes[nodeID(0)].Serve(t.Context(), test.req, far) // The result reports the error too.
		}()
		go func() { _, _ = near.Write([]byte(test.data)) }() // A refusal does not wait for it.
		if _, err := readResult(near); compute.CodeOf(err) != test.want {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
		}
		near.Close()
	}
	if c.nodes[nodeID(0)].cfg.Store.Has(hash) {
		t.Error("wrong bytes were kept")
	}
}

func TestDeleteEverywhere(t *testing.T) {
	c := newCluster(t, 3, 2)
	hash, err := c.nodes[nodeID(0)].Put(t.Context(), []byte("data"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.nodes[nodeID(1)].Delete(t.Context(), hash); err != nil || len(c.have(hash)) != 0 {
		t.Errorf("on %v, %v", c.have(hash), err)
	}
}

// TestOwnersMoveLittle checks that a node that leaves moves only the blobs that
// it had.
func TestOwnersMoveLittle(t *testing.T) {
	nodes := make([]Node, 6)
	for i := range nodes {
		nodes[i] = Node{ID: nodeID(i), Up: true}
	}
	count := map[compute.NodeID]int{}
	for i := range 3000 {
		hash := compute.Hash(sha256.Sum256(fmt.Append(nil, i)))
		before := owners(hash, nodes)
		after := owners(hash, nodes[:5])
		count[before[0].ID]++
		want := before[0]
		if want.ID == nodeID(5) {
			want = before[1]
		}
		if after[0] != want {
			t.Fatalf("blob %d moved from %v to %v", i, want, after[0])
		}
	}
	for id, n := range count {
		if n < 350 || n > 650 {
			t.Errorf("node %s is first for %d of 3000", id, n)
		}
	}
}

// TestScrubRepairsUnreadBlobs damages copies that nobody asks for.
func TestScrubRepairsUnreadBlobs(t *testing.T) {
	c := newCluster(t, 3, 2)
	var hashes []compute.Hash
	for i := range 20 {
		hash, err := c.nodes[nodeID(0)].Put(t.Context(), fmt.Appendf(nil, "blob %d", i))
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, hash)
	}
	scrub := func(n int, wantDamaged int) {
		t.Helper()
		paced := 0
		read, damaged, err := c.nodes[nodeID(n)].Scrub(t.Context(), func(bytes int) error { paced += bytes; return nil })
		if err != nil || damaged != wantDamaged || read == 0 || paced == 0 {
			t.Errorf("node %d: read %d of %d bytes, %d damaged, %v", n, read, paced, damaged, err)
		}
	}
	scrub(1, 0)
	var victims []compute.Hash
	store := c.nodes[nodeID(1)].cfg.Store
	for _, hash := range hashes {
		if store.Has(hash) && len(victims) < 3 {
			victims = append(victims, hash)
			if err := os.WriteFile(store.path(hash), []byte("other bytes"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	scrub(1, len(victims))
	for _, hash := range victims {
		if _, err := store.Get(hash); err != nil {
			t.Errorf("not repaired: %v", err)
		}
	}
	scrub(1, 0)
	stop := errors.New("stop")
	if _, _, err := c.nodes[nodeID(1)].Scrub(t.Context(), func(int) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("when it is to stop: %v", err)
	}
}

// TestPeek reads what this disk has, right or wrong, and changes nothing.
func TestPeek(t *testing.T) {
	c := newCluster(t, 1, 1)
	b := c.nodes[nodeID(0)]
	hash, err := b.Put(t.Context(), []byte("precious"))
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]bool{7: false, 8: false, 9: true, 100: true} {
		if got, ok := b.Peek(hash, make([]byte, size)); ok != want || ok && string(got) != "precious" {
			t.Errorf("in %d bytes it is %q, %t", size, got, ok)
		}
	}
	damage(t, b.cfg.Store, hash)
	if got, ok := b.Peek(hash, make([]byte, 100)); !ok || len(got) != 8 || string(got) == "precious" || !b.Has(hash) {
		t.Errorf("damaged it is %q, %t", got, ok)
	}
	if _, err := b.Get(t.Context(), hash); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("it is then read as %v", err)
	}
	if _, ok := b.Peek(hash, make([]byte, 100)); ok {
		t.Error("a blob that is set aside is still there")
	}
}

// TestMirror reads blobs that no node returns from their copies outside of the cluster, and
// puts them back on the disks that should have them. GetFromNodes does not.
func TestMirror(t *testing.T) {
	c := newCluster(t, 3, 2)
	data := []byte("only outside")
	hash := compute.Hash(sha256.Sum256(data))
	asked := 0
	refuse := error(nil)
	for _, b := range c.nodes {
		b.cfg.Mirror = func(_ context.Context, h compute.Hash) ([]byte, error) {
			asked++
			switch {
			case refuse != nil:
				return nil, refuse
			case h == hash:
				return data, nil
			}
			return nil, notHere(h)
		}
	}
	node := c.nodes[nodeID(0)]
	if _, err := node.GetFromNodes(t.Context(), hash); compute.CodeOf(err) != compute.CodeNotFound || asked != 0 {
		t.Errorf("of the nodes: %v, the mirror was asked %d times", err, asked)
	}
	refuse = compute.Errorf(compute.CodeUnavailable, "It does not answer.")
	if _, err := node.Get(t.Context(), hash); compute.CodeOf(err) != compute.CodeUnavailable {
		t.Errorf("the mirror may have it: %v", err)
	}
	if err := node.Fetch(t.Context(), hash); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("fetched, while the mirror does not answer: %v", err)
	}
	refuse = nil
	if got, err := node.Get(t.Context(), hash); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("got %q, %v", got, err)
	}
	have := 0
	for _, b := range c.nodes {
		if b.Has(hash) {
			have++
		}
	}
	if have != 2 {
		t.Errorf("%d disks have it again, want 2", have)
	}
	asked = 0
	if _, err := node.Get(t.Context(), hash); err != nil || asked != 0 {
		t.Errorf("a blob on the disks: %v, the mirror was asked %d times", err, asked)
	}
	if _, err := node.Get(t.Context(), compute.Hash{1}); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("a blob that is nowhere: %v", err)
	}
}

// TestMirrorFetches has a server fetch what no other one has from the mirror.
func TestMirrorFetches(t *testing.T) {
	c := newCluster(t, 2, 1)
	data := []byte("only outside")
	hash := compute.Hash(sha256.Sum256(data))
	for _, b := range c.nodes {
		b.cfg.Mirror = func(context.Context, compute.Hash) ([]byte, error) { return data, nil }
		if err := b.Fetch(t.Context(), hash); err != nil || !b.Has(hash) {
			t.Errorf("%v, it has it: %t", err, b.Has(hash))
		}
	}
}
