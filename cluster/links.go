package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"berth/cluster/rpc"
	"berth/compute"
)

// links holds the connections over which this node calls others, one each.
type links struct {
	open func(ctx context.Context, id compute.NodeID) (*rpc.Client, error)

	mu    sync.Mutex
	nodes map[compute.NodeID]*link
}

// link is the connection to one node.
type link struct {
	turn   chan struct{} // A semaphore, held while dialling.
	client *rpc.Client   // Written by the holder of turn, under links.mu.
}

// get returns the connection to id, dialling when there is none.
func (l *links) get(ctx context.Context, id compute.NodeID) (*rpc.Client, error) {
	l.mu.Lock()
	if l.nodes == nil {
		l.nodes = make(map[compute.NodeID]*link)
	}
	n := l.nodes[id]
	if n == nil {
		n = &link{turn: make(chan struct{}, 1)}
		l.nodes[id] = n
	}
	client := n.client
	l.mu.Unlock()
	if client != nil && !client.Closed() {
		return client, nil
	}
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", rpc.ErrNotSent, ctx.Err())
	}
	l.mu.Lock()
	client = n.client
	l.mu.Unlock()
	if client != nil && !client.Closed() {
		return client, nil // Another caller dialled meanwhile.
	}
	client, err := l.open(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rpc.ErrNotSent, err)
	}
	l.mu.Lock()
	n.client = client
	l.mu.Unlock()
	return client, nil
}

// closeAll ends all connections.
func (l *links) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.nodes {
		if n.client != nil {
			n.client.Close()
		}
	}
}

// openLink dials id for calls.
func (c port) openLink(ctx context.Context, id compute.NodeID) (*rpc.Client, error) {
	conn, err := c.dial(ctx, id, protoRPC)
	if err != nil {
		return nil, err
	}
	client, err := rpc.NewClient(conn, c.codec, c.logger)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return client, nil
}

// Call calls a method of a node, which may be this one. An error of the
// method is a *compute.Error; one that wraps rpc.ErrNotSent means that the call
// did not reach the node.
func (c *Cluster) Call(ctx context.Context, node compute.NodeID, method string, request []byte) ([]byte, error) {
	client, err := c.links.get(ctx, node)
	if err != nil {
		return nil, err
	}
	return client.Call(ctx, method, request)
}

// Open calls a stream method of a node, which may be this one. It returns the
// method's answer and the stream, which ends with ctx and which the caller
// closes.
func (c *Cluster) Open(
	ctx context.Context, node compute.NodeID, method string, request []byte,
) ([]byte, io.ReadWriteCloser, error) {
	client, err := c.links.get(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	return client.Open(ctx, method, request)
}

// addressesOf returns the known addresses of a node, the freshest first. A wrong
// one does no harm: the dialled side must show the node's certificate.
func (c port) addressesOf(id compute.NodeID) []string {
	if id == c.id {
		return []string{c.advertise}
	}
	var all []string
	add := func(address string) {
		if address != "" && !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	if c.terms.ready() != 0 {
		add(c.heartbeats.rpcAddress(id)) // Authenticated, and of this term.
	}
	add(c.gossip.RPCAddress(id))
	add(c.heartbeats.rpcAddress(id))
	add(c.gossip.ClaimedAddress(id))
	for _, s := range c.servers() {
		if s.ID == raft.ServerID(id.String()) {
			add(string(s.Address))
		}
	}
	for _, p := range c.dir.Record().Peers {
		if p.ID == id {
			add(p.RPC)
		}
	}
	add(c.cfg.Directory.Address(id)) // A restarted server knows no other address of a worker.
	return all
}
