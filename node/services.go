package node

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/google/uuid"

	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/node/router"
)

// methodDialPort is the stream by which a node connects to a port that an attempt on
// another one serves.
const methodDialPort = "services.dial"

// portRequestBytes is the size of a request of methodDialPort: execution and epoch.
const portRequestBytes = 24

// serveServices has other nodes connect to the ports of attempts on this one.
func (n *Node) serveServices() {
	n.cluster.HandleStream(methodDialPort, cluster.Servers, n.servePort)
}

// servePort connects another node with a port of an attempt, until one of the two
// closes the connection.
func (n *Node) servePort(ctx context.Context, _ rpc.Peer, req []byte, stream *rpc.Stream) error {
	if len(req) != portRequestBytes {
		return compute.Errorf(compute.CodeInvalid, "Not a request for a port.")
	}
	id := compute.ExecutionID{UUID: compute.UUID(req[:16])}
	port, err := n.dialOwn(id, binary.BigEndian.Uint64(req[16:]))
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
			_, _ = io.Copy(struct{ io.Writer }{way.to}, struct{ io.Reader }{way.from})
		})
	}
	group.Wait()
	return nil
}

// dialOwn connects to a port of an attempt on this node.
func (n *Node) dialOwn(id compute.ExecutionID, epoch uint64) (net.Conn, error) {
	file, err := n.executor.DialPort(id, epoch)
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

// dialReplica connects to a replica of a service, here or on another node.
func (n *Node) dialReplica(ctx context.Context, to router.Replica) (net.Conn, error) {
	if to.Node == n.cluster.ID() {
		return n.dialOwn(to.Execution, to.Epoch)
	}
	req := binary.BigEndian.AppendUint64(append([]byte(nil), to.Execution.UUID[:]...), to.Epoch)
	life, cancel := context.WithCancel(context.WithoutCancel(ctx)) // The stream ends with it.
	stop := context.AfterFunc(ctx, cancel)
	_, stream, err := n.cluster.Open(life, to.Node, methodDialPort, req)
	if !stop() || err != nil {
		cancel()
		if err == nil {
			stream.Close()
			err = ctx.Err()
		}
		return nil, err
	}
	conn, ok := stream.(net.Conn)
	if !ok {
		cancel()
		return nil, fmt.Errorf("dial replica: %T is no connection", stream)
	}
	return &peerConn{conn, cancel}, nil
}

// newID returns an identifier that begins with the time.
func newID() compute.UUID { return compute.UUID(uuid.Must(uuid.NewV7())) }

// peerConn ends the life of its stream when it is closed.
type peerConn struct {
	net.Conn
	cancel context.CancelFunc
}

func (c *peerConn) Close() error {
	defer c.cancel()
	return c.Conn.Close()
}
