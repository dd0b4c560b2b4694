package gossip

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/cluster/datadir"
	"berth/cluster/rpc"
	"berth/compute"
)

// mustGossip returns the gossip of a node that knows itself alone.
func mustGossip(t *testing.T) *Gossip {
	t.Helper()
	dir, err := datadir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	g := New(Config{
		Listen: "127.0.0.1:0", Name: "n", AdvertisedHost: func(ip net.IP) (string, error) { return ip.String(), nil },
		Rand: rand.Reader, Codec: rpc.NewCodec(), Logger: slog.New(slog.DiscardHandler), Closed: make(chan struct{}),
		Alive:   prometheus.NewGauge(prometheus.GaugeOpts{}),
		Servers: func() []compute.NodeID { return nil },
		Lookup:  func(compute.NodeID) (removed, known bool) { return false, true },
	})
	err = errors.Join(MakeKeyring(dir, rand.Reader), g.Listen(dir))
	if err == nil {
		err = g.Open(Identity{Node: compute.NodeID{UUID: compute.UUID{1}}, Cluster: compute.UUID{2}, RPC: "127.0.0.1:1"})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// begin returns how a message begins that announces so many bytes.
func begin(label string, length uint32, version byte) []byte {
	head := append([]byte{labelType, byte(len(label))}, label...)
	return append(binary.BigEndian.AppendUint32(append(head, encryptedType), length), version)
}

// mustEnd writes to the node until it hangs up, and returns how much it took.
func mustEnd(t *testing.T, g *Gossip, head []byte) (taken int) {
	t.Helper()
	conn, err := net.Dial("tcp", g.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Write(head)
	piece := make([]byte, 64<<10)
	for err == nil && taken < 64<<20 {
		var n int
		n, err = conn.Write(piece)
		taken += n
	}
	return taken
}

// TestStrangersSendLittle sends the port data that nobody can decrypt: it is not read.
func TestStrangersSendLittle(t *testing.T) {
	const kernel = 16 << 20 // Buffers of the kernel, and more.
	g := mustGossip(t)
	label := g.id.Cluster.String()
	for name, head := range map[string][]byte{
		"too much":           begin(label, 20<<20, encryptedVsn),
		"another encryption": begin(label, 1<<20, 0),
		"nothing":            begin(label, 0, encryptedVsn),
		"no encryption":      append(begin(label, 0, 0)[:2+len(label)], 0, 0, 0, 0, 0, 0),
		"a message and more": append(begin(label, 1000, encryptedVsn), make([]byte, 999)...),
		"bytes":              []byte(strings.Repeat("x", 300)),
		"another cluster's":  begin("elsewhere", 1<<20, encryptedVsn),
		"a little too much":  begin(label, 4<<20+1, encryptedVsn),
	} {
		if taken := mustEnd(t, g, head); taken > kernel {
			t.Errorf("%s: the node has taken %d bytes", name, taken)
		}
	}
}

// TestEmptyMessages sends messages of a node with the gossip key that contain
// nothing, in both forms of encryption. memberlist panics about them.
func TestEmptyMessages(t *testing.T) {
	g := mustGossip(t)
	label := g.id.Cluster.String()
	block, err := aes.NewCipher(g.keys.GetPrimaryKey())
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	for version, plain := range [][]byte{bytes.Repeat([]byte{aes.BlockSize}, aes.BlockSize), nil} {
		nonce := make([]byte, gcm.NonceSize())
		length := uint32(1 + len(nonce) + len(plain) + gcm.Overhead())
		head := begin(label, length, byte(version))
		sealed := append([]byte{encryptedType}, binary.BigEndian.AppendUint32(nil, length)...)
		sealed = gcm.Seal(nil, nonce, plain, append(sealed, label...))
		mustEnd(t, g, append(append(head, nonce...), sealed...))
	}
	if len(g.Members()) != 1 {
		t.Errorf("the members are %v", g.Members())
	}
}

// TestStreamsAreBounded opens streams beyond the limits: the oldest leaves, and the
// one that has brought most.
func TestStreamsAreBounded(t *testing.T) {
	var s streams
	open := func() *stream {
		near, far := net.Pipe()
		t.Cleanup(func() { far.Close() })
		n := s.add(near)
		n.good = true
		return n
	}
	first := open()
	for range maxStreams {
		open()
	}
	if s.count(first, 1) || s.order.Len() != maxStreams {
		t.Errorf("the oldest of %d streams goes on", s.order.Len())
	}
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, errTooMuch) {
		t.Errorf("a stream that has left: %v", err)
	}
	greedy, modest := open(), open()
	if s.count(greedy, maxStreamBytes+1) || !s.count(modest, 1<<20) {
		t.Error("the wrong stream has left")
	}
	greedy = open()
	if !s.count(greedy, maxStreamBytes) {
		t.Error("a large exchange ends")
	}
	for s.bytes <= maxStreamsBytes-1<<20 {
		if !s.count(open(), 1<<20) {
			t.Fatal("a modest stream has left")
		}
	}
	if !s.count(open(), 1<<20) || s.count(greedy, 0) {
		t.Error("the one that has brought most stays")
	}
	for at := s.order.Front(); at != nil; at = s.order.Front() {
		at.Value.(*stream).Close()
	}
	if s.bytes != 0 {
		t.Errorf("%d bytes are left of no stream", s.bytes)
	}
}
