package node

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/node/router"
)

// methodDialPort is the stream by which a node connects to a port that an attempt on
// another one serves.
const methodDialPort = "services.dial"

// methodServeServices is the stream by which a worker has a server answer requests to
// services. It carries HTTP.
const methodServeServices = "services.relay"

// Idle streams that a worker keeps to servers.
const (
	idleRelays = 32
	idleRelay  = 30 * time.Second
)

// portRequestBytes is the size of a request of methodDialPort: execution and epoch.
const portRequestBytes = 24

// servicePorts connects routers with the ports of attempts, here and on other nodes.
type servicePorts struct{ node *Node }

// serve has other nodes connect to the ports of attempts on this one.
func (p servicePorts) serve() {
	p.node.cluster.HandleStream(methodDialPort, cluster.Servers, p.servePort)
}

// servePort connects another node with a port of an attempt, until one of the two
// closes the connection.
func (p servicePorts) servePort(ctx context.Context, _ rpc.Peer, req []byte, stream *rpc.Stream) error {
	if len(req) != portRequestBytes {
		return compute.Errorf(compute.CodeInvalid, "Not a request for a port.")
	}
	id := compute.ExecutionID{UUID: compute.UUID(req[:16])}
	port, err := p.dialOwn(id, binary.BigEndian.Uint64(req[16:]))
	if err != nil {
		return err
	}
	defer port.Close()
	if err := stream.Accept(nil); err != nil {
		return err
	}
	shut := sync.OnceFunc(func() {
		port.Close()
		stream.Close()
	})
	defer context.AfterFunc(ctx, shut)()
	var group sync.WaitGroup
	for _, way := range []struct {
		to   io.Writer
		from io.Reader
	}{{port, stream}, {stream, port}} {
		group.Go(func() {
			defer shut()
			copyPieces(way.to, way.from)
		})
	}
	group.Wait()
	return nil
}

// dialOwn connects to a port of an attempt on this node.
func (p servicePorts) dialOwn(id compute.ExecutionID, epoch uint64) (net.Conn, error) {
	file, err := p.node.executor.DialPort(id, epoch)
	if err != nil {
		return nil, err
	}
	defer file.Close() // The connection has a descriptor of its own.
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("dial port: %w", err)
	}
	return conn, nil
}

// dial connects to a replica of a service, here or on another node.
func (p servicePorts) dial(ctx context.Context, to router.Replica) (net.Conn, error) {
	if to.Node == p.node.cluster.ID() {
		return p.dialOwn(to.Execution, to.Epoch)
	}
	if !p.node.dials.take(to.Node) {
		return nil, router.ErrManyConnections
	}
	give := sync.OnceFunc(func() { p.node.dials.give(to.Node) })
	req := binary.BigEndian.AppendUint64(append([]byte(nil), to.Execution.UUID[:]...), to.Epoch)
	conn, err := dialStream(ctx, func(life context.Context) (io.ReadWriteCloser, error) {
		_, stream, err := p.node.cluster.Open(life, to.Node, methodDialPort, req)
		return stream, err
	})
	if err != nil {
		give()
		return nil, err
	}
	return &countedConn{conn, give}, nil
}

// dialServer connects a worker to the services of some server.
func (p servicePorts) dialServer(ctx context.Context, _, _ string) (net.Conn, error) {
	return dialStream(ctx, func(life context.Context) (io.ReadWriteCloser, error) {
		return p.node.cluster.OpenSome(life, methodServeServices, nil, func(io.Reader) error { return nil })
	})
}

// dialStream opens a stream that outlives ctx once it is open.
func dialStream(ctx context.Context, open func(life context.Context) (io.ReadWriteCloser, error)) (net.Conn, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	stream, err := open(life)
	if !stop() || err != nil {
		cancel()
		if err == nil {
			stream.Close()
			err = ctx.Err()
		}
		return nil, err
	}
	return &streamConn{stream, cancel}, nil
}

// newID returns an identifier that begins with the time.
func newID() compute.UUID { return compute.UUID(uuid.Must(uuid.NewV7())) }

// streamConn is a stream between nodes as a connection. Nobody sets its deadlines.
type streamConn struct {
	io.ReadWriteCloser
	cancel context.CancelFunc // Ends the life of the stream.
}

// Close ends the stream.
func (c *streamConn) Close() error {
	defer c.cancel()
	return c.ReadWriteCloser.Close()
}

// streamAddr is the address of what is reached by its identity.
type streamAddr struct{}

// Network returns a name for what carries the stream.
func (streamAddr) Network() string { return "cluster" }

// String returns no address.
func (streamAddr) String() string { return "stream" }

// LocalAddr returns no address.
func (c *streamConn) LocalAddr() net.Addr { return streamAddr{} }

// RemoteAddr returns no address.
func (c *streamConn) RemoteAddr() net.Addr { return streamAddr{} }

// SetDeadline does nothing.
func (c *streamConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (c *streamConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (c *streamConn) SetWriteDeadline(time.Time) error { return nil }

// serveWorkers answers requests to services that workers hand on.
func (p servicePorts) serveWorkers() {
	p.node.cluster.HandleStream(methodServeServices, cluster.Workers,
		func(_ context.Context, _ rpc.Peer, _ []byte, stream *rpc.Stream) error {
			if err := stream.Accept(nil); err != nil {
				return err
			}
			return p.node.api.ServeServices(stream) // Requests live as the server does.
		})
}

// relay returns the transport of a worker, which has servers answer requests to
// services.
func (p servicePorts) relay() http.RoundTripper {
	transport := &http.Transport{
		DialContext: p.dialServer, DisableCompression: true, MaxIdleConnsPerHost: idleRelays, IdleConnTimeout: idleRelay,
	}
	p.node.onClose(func() error {
		transport.CloseIdleConnections()
		return nil
	})
	return transport
}
