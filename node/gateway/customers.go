package gateway

import (
	"net"
	"sync"

	"berth/api/auth"
)

// customerShare is the part of the connections that one customer may have: a quarter.
const customerShare = 4

// Customers counts the connections of each customer (auth.Customer), so that none takes all
// places of an endpoint: beyond its share, it gets them while half are free.
type Customers struct {
	most, scarce int

	mu   sync.Mutex
	all  int
	open map[string]int
}

// NewCustomers returns the count for an endpoint with so many places.
func NewCustomers(places int) *Customers {
	return &Customers{most: places / customerShare, scarce: places / 2, open: make(map[string]int)}
}

// Take counts a connection. It reports false if its customer has too many. The caller calls
// release at its end.
func (c *Customers) Take(conn net.Conn) (release func(), ok bool) {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return func() {}, true
	}
	name := auth.Customer("", tcp.AddrPort().Addr())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[name] >= c.most && c.all >= c.scarce {
		return nil, false
	}
	c.all++
	c.open[name]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all--
		if c.open[name]--; c.open[name] == 0 {
			delete(c.open, name)
		}
	}, true
}
