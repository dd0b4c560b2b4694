package transport

import (
	"context"
	"fmt"
	"sync"

	"berth/cluster/rpc"
	"berth/compute"
)

// Links holds the connections over which this node calls others, one each.
type Links struct {
	open func(ctx context.Context, id compute.NodeID) (*rpc.Client, error)

	mu    sync.Mutex
	nodes map[compute.NodeID]*link
}

// NewLinks returns links that open makes when they are needed first.
func NewLinks(open func(context.Context, compute.NodeID) (*rpc.Client, error)) *Links {
	return &Links{open: open, nodes: make(map[compute.NodeID]*link)}
}

// link is the connection to one node.
type link struct {
	turn   chan struct{} // A semaphore, held while dialling.
	client *rpc.Client   // Written by the holder of turn, under Links.mu.
}

// Get returns the connection to id, dialling when there is none.
func (l *Links) Get(ctx context.Context, id compute.NodeID) (*rpc.Client, error) {
	l.mu.Lock()
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

// Close ends all connections.
func (l *Links) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.nodes {
		if n.client != nil {
			n.client.Close()
		}
	}
}
