package node

import (
	"net"
	"sync"

	"berth/compute"
)

// maxDials bounds the connections to ports on one other node. Streams of all kinds share the
// connection between the two (rpc.Server): beyond its limit no output could be read either.
const maxDials = 2048

// dials counts the connections to ports on other nodes. Its zero value has none.
type dials struct {
	mu sync.Mutex

	open map[compute.NodeID]int
}

// take counts one more connection to a node, and reports whether there may be one.
func (d *dials) take(to compute.NodeID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = make(map[compute.NodeID]int)
	}
	if d.open[to] >= maxDials {
		return false
	}
	d.open[to]++
	return true
}

func (d *dials) give(to compute.NodeID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[to]--; d.open[to] <= 0 {
		delete(d.open, to)
	}
}

// countedConn is a connection that is counted until it is closed.
type countedConn struct {
	net.Conn
	give func()
}

// Close closes the connection.
func (c *countedConn) Close() error {
	defer c.give()
	return c.Conn.Close()
}
