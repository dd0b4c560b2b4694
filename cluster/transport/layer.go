package transport

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"berth/compute"
)

// raftBacklog is the number of accepted connections that raft has not fetched yet.
const raftBacklog = 16

// Layer is the raft transport's view of the cluster port. Its addresses are
// node ids: dialing looks the address up and checks the identity of the other
// side.
type Layer struct {
	accepted  chan net.Conn
	closed    chan struct{}
	advertise string
	dial      func(ctx context.Context, id compute.NodeID, proto string) (net.Conn, error)
}

// NewLayer returns a layer that reports advertise as its address and connects with
// dial.
func NewLayer(advertise string, dial func(context.Context, compute.NodeID, string) (net.Conn, error)) *Layer {
	return &Layer{
		accepted: make(chan net.Conn, raftBacklog), closed: make(chan struct{}), advertise: advertise, dial: dial,
	}
}

// Offer passes a connection to raft. It calls release when raft closes the
// connection, and reports false when raft has stopped.
func (l *Layer) Offer(ctx context.Context, conn net.Conn, release func()) bool {
	return l.offer(ctx, &closeHook{Conn: conn, hook: release})
}

func (l *Layer) offer(ctx context.Context, conn net.Conn) bool {
	select {
	case l.accepted <- conn:
		return true
	case <-l.closed:
	case <-ctx.Done():
	}
	return false
}

// Accept returns the next connection of another server.
func (l *Layer) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. The transport calls it once.
func (l *Layer) Close() error {
	close(l.closed)
	return nil
}

// Addr returns the advertised address.
func (l *Layer) Addr() net.Addr { return layerAddr(l.advertise) }

// Dial connects to the server whose id is address.
func (l *Layer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	id, err := compute.ParseNodeID(string(address))
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", address, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.dial(ctx, id, ProtoRaft)
}

// ServerAddr makes the transport dial ids; see Dial.
func (l *Layer) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	return raft.ServerAddress(id), nil
}

type layerAddr string

func (layerAddr) Network() string  { return "tcp" }
func (a layerAddr) String() string { return string(a) }

// closeHook calls hook when the connection is closed.
type closeHook struct {
	net.Conn
	hook func()
}

func (h *closeHook) Close() error {
	h.hook()
	return h.Conn.Close()
}
