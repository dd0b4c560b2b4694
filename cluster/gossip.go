package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"berth/cluster/liblog"
	"berth/cluster/rpc"
	"berth/compute"
)

// Limits of gossip.
const (
	MaxInventory   = 256 << 10 // Bytes of an encoded inventory.
	publishTimeout = 2 * time.Second
	rejoinMin      = time.Second // While a server is missing; doubled up to rejoinMax.
	rejoinMax      = 30 * time.Second
	reclaimAfter   = 30 * time.Second // When a node may come back at another address.
	maxForgotten   = 1024             // Nodes kept after they were lost.
	claimRepeat    = 10 * time.Minute // For which the log says of a claim nothing more.

	workerProbe = 5 * time.Second // How often a worker looks whether some other node is there.
	workerWait  = 3 * time.Second // For the answer.
)

// Versions of what the delegate exchanges. Raise the maximum one release
// before anyone speaks it: peers whose ranges do not meet refuse each other.
const (
	delegateVersion    = 1
	delegateVersionMin = 1
	delegateVersionMax = 1
)

// Member is a node as gossip tells it: a hint, which anyone who holds the
// gossip key could forge.
type Member struct {
	ID               compute.NodeID
	Name             string
	Role             compute.Role
	RPC              string // host:port.
	Gossip           string // host:port.
	API              string // Full URL.
	Metrics          string // Full URL.
	Version          string
	InventoryVersion uint64
	InventoryHash    [16]byte
	Alive            bool
}

// gossipMeta is what a node says of itself with every sign of life.
type gossipMeta struct {
	Name             string       `cbor:"1,keyasint"`
	Role             compute.Role `cbor:"2,keyasint,omitempty"`
	RPC              string       `cbor:"3,keyasint"`
	API              string       `cbor:"4,keyasint,omitempty"`
	Metrics          string       `cbor:"5,keyasint,omitempty"`
	Version          string       `cbor:"6,keyasint,omitempty"`
	InventoryVersion uint64       `cbor:"7,keyasint,omitempty"`
	InventoryHash    [16]byte     `cbor:"8,keyasint"`
}

// claim is where else a member is said to be.
type claim struct {
	rpc  string
	told time.Time // When the log last said so.
}

// gossip is this node's part in the gossip of the cluster.
type gossip struct {
	c         *Cluster
	transport *memberlist.NetTransport
	list      *memberlist.Memberlist // Nil until open.
	keys      *memberlist.Keyring
	advertise string
	publish   chan struct{} // Signals that the meta changed.

	mu      sync.Mutex
	own     gossipMeta
	body    []byte // The encoded inventory of this node.
	members map[compute.NodeID]Member
	bodies  map[compute.NodeID]compute.Inventory
	claims  map[compute.NodeID]claim
	unknown bool          // Nodes were turned away that the state may know in a moment.
	changed chan struct{} // Closed at the next change.
}

func newGossip(c *Cluster) *gossip {
	return &gossip{
		c:       c,
		publish: make(chan struct{}, 1),
		members: make(map[compute.NodeID]Member),
		bodies:  make(map[compute.NodeID]compute.Inventory),
		claims:  make(map[compute.NodeID]claim),
		changed: make(chan struct{}),
	}
}

// listen opens the gossip port, TCP and UDP on one number. It comes before
// joining, because the node that joins tells its address.
func (g *gossip) listen() error {
	host, portText, err := net.SplitHostPort(g.c.cfg.GossipListen)
	if err != nil {
		return compute.Errorf(compute.CodeInvalid, "The gossip address is not host:port: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return compute.Errorf(compute.CodeInvalid, "The gossip address is not host:port: %w", err)
	}
	ip, err := net.ResolveIPAddr("ip", host)
	if err != nil {
		return fmt.Errorf("open gossip port: %w", err)
	}
	if host == "" {
		ip.IP = net.IPv4zero
	}
	g.transport, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
		BindAddrs: []string{ip.IP.String()},
		BindPort:  port,
		Logger:    log.New(liblog.Memberlist(g.c.logger, g.c.closed), "", 0),
	})
	if err != nil {
		return fmt.Errorf("open gossip port: %w", err)
	}
	if port == 0 {
		port = g.transport.GetAutoBindPort()
	}
	if host, err = advertisedHost(g.c.cfg.Advertise, ip.IP); err != nil {
		return err
	}
	g.advertise = joinPort(host, port)
	return nil
}

// open starts gossiping.
func (g *gossip) open() error {
	if err := g.loadKeyring(); err != nil {
		return err
	}
	address, err := net.ResolveUDPAddr("udp", g.advertise)
	if err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	g.mu.Lock()
	g.own = gossipMeta{
		Name: g.c.cfg.Name, Role: g.c.cfg.Role, RPC: g.c.advertise, API: g.c.cfg.API,
		Metrics: g.c.cfg.Metrics, Version: g.c.cfg.Version,
		InventoryVersion: g.own.InventoryVersion, InventoryHash: g.own.InventoryHash,
	}
	g.mu.Unlock()
	if g.list, err = memberlist.Create(g.config(address)); err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	return nil
}

// config returns the library's settings for a node at address.
func (g *gossip) config(address *net.UDPAddr) *memberlist.Config {
	cfg := memberlist.DefaultLANConfig()
	cfg.Name = g.c.id.String() // A node that moves keeps its name.
	cfg.Transport = g.transport
	cfg.AdvertiseAddr = address.IP.String()
	cfg.AdvertisePort = address.Port
	cfg.Keyring = g.keys
	cfg.Label = g.c.clusterID.String()
	cfg.RequireNodeNames = true
	cfg.DeadNodeReclaimTime = reclaimAfter
	cfg.Delegate = (*gossipDelegate)(g)
	cfg.Events = (*gossipDelegate)(g)
	cfg.Alive = (*gossipDelegate)(g)
	cfg.Conflict = (*gossipDelegate)(g)
	cfg.DelegateProtocolVersion = delegateVersion
	cfg.DelegateProtocolMin = delegateVersionMin
	cfg.DelegateProtocolMax = delegateVersionMax
	cfg.LogOutput = liblog.Memberlist(g.c.logger, g.c.closed)
	// What nodes send is short: packing it costs more than it saves.
	cfg.EnableCompression = false
	if g.c.isWorker() {
		// Workers are many. If all of them looked every second, one slow machine
		// would be suspected by all, and each suspicion goes to all: they would
		// have no time left to answer. Servers look often enough.
		cfg.ProbeInterval, cfg.ProbeTimeout = workerProbe, workerWait
	}
	return cfg
}

// close stops gossiping without a farewell: a restart is no leave.
func (g *gossip) close() error {
	switch {
	case g.list != nil:
		if err := g.list.Shutdown(); err != nil {
			return fmt.Errorf("stop gossip: %w", err)
		}
	case g.transport != nil:
		if err := g.closeUnopened(); err != nil {
			return fmt.Errorf("stop gossip: %w", err)
		}
	}
	return nil
}

// closeUnopened closes the port of a node that never gossiped. What others have
// sent to it meanwhile waits in the transport for somebody to take it, and its
// end for that.
func (g *gossip) closeUnopened() error {
	closed := make(chan struct{})
	defer close(closed)
	go func() {
		for {
			select {
			case <-g.transport.PacketCh():
			case conn := <-g.transport.StreamCh():
				conn.Close()
			case <-closed:
				return
			}
		}
	}()
	return g.transport.Shutdown()
}

// Leave tells the others that this node goes for good, so that they do not
// suspect it. Whether it is removed from the cluster is for the state to say.
func (c *Cluster) Leave(ctx context.Context) error {
	timeout := publishTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = time.Until(deadline)
	}
	if err := c.gossip.list.Leave(timeout); err != nil {
		return fmt.Errorf("leave gossip: %w", err)
	}
	return nil
}

// run spreads changes of the meta until ctx ends.
func (g *gossip) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.publish:
			if err := g.list.UpdateNode(publishTimeout); err != nil {
				g.c.logger.Debug("meta not spread yet", "err", err)
			}
		}
	}
}

// rejoin joins the others again and again: two halves that were split for
// long forget each other and never meet by themselves.
func (g *gossip) rejoin(ctx context.Context) error {
	wait := rejoinMin
	for {
		g.join()
		if pause(ctx, wait+rand.N(wait)) != nil {
			return nil //nolint:nilerr // The end of ctx.
		}
		wait = min(2*wait, rejoinMax)
		if g.complete() {
			wait = rejoinMax
		}
	}
}

// complete reports whether gossip sees every server, and turned nobody away since
// it joined last because the state did not know them: that of a server that has
// just started is behind, and who was turned away does not come again soon.
func (g *gossip) complete() bool {
	servers := g.c.Servers() // Takes the lock itself.
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.unknown {
		return false
	}
	for _, s := range servers {
		if !g.members[s.ID].Alive {
			return false
		}
	}
	return true
}

// turnAway notes that a node was refused that is not known.
func (g *gossip) turnAway() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unknown = true
}

// join exchanges the state with every peer whose address is known and who is
// not seen.
func (g *gossip) join() {
	var addresses []string
	g.mu.Lock()
	g.unknown = false
	for _, p := range g.c.dir.Record().Peers {
		if p.Gossip != "" && p.ID != g.c.id {
			addresses = append(addresses, namedAddress(p.ID, p.Gossip))
		}
	}
	for id, m := range g.members {
		if m.Role == compute.RoleWorker && m.Alive || g.c.isWorker() {
			continue // Workers are many, and look for servers themselves.
		}
		address := namedAddress(id, m.Gossip)
		if id != g.c.id && !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	g.mu.Unlock()
	if len(addresses) == 0 {
		return
	}
	if _, err := g.list.Join(addresses); err != nil {
		g.c.logger.Debug("gossip not joined everywhere", "err", err)
	}
}

// namedAddress returns an address to join as memberlist wants it when names
// are required.
func namedAddress(id compute.NodeID, hostPort string) string {
	return id.String() + "/" + hostPort
}

// SetInventory publishes what this node has: version and hash with every sign
// of life, the body with each full exchange and to whoever pulls it.
func (c *Cluster) SetInventory(inv compute.Inventory) error {
	inv.Node = c.id
	body := c.codec.Marshal(inv)
	if len(body) > MaxInventory {
		return compute.Errorf(compute.CodeTooLarge,
			"The inventory of %d bytes is over the limit of %d.", len(body), MaxInventory)
	}
	g := c.gossip
	g.mu.Lock()
	g.body = body
	g.own.InventoryVersion, g.own.InventoryHash = inv.Version, hashOf(body)
	g.mu.Unlock()
	select {
	case g.publish <- struct{}{}:
	default: // A signal is waiting already.
	}
	return nil
}

// Inventory returns the body that gossip brought of a node's inventory, when
// it is the one that the node announces. It is a hint, as all of gossip.
func (c *Cluster) Inventory(node compute.NodeID) (compute.Inventory, bool) {
	c.gossip.mu.Lock()
	defer c.gossip.mu.Unlock()
	inv, ok := c.gossip.bodies[node]
	return inv, ok && inv.Version == c.gossip.members[node].InventoryVersion
}

// PullInventory asks a node for its inventory over an authenticated
// connection. The error is CodeNotFound when the node has none yet.
func (c *Cluster) PullInventory(ctx context.Context, node compute.NodeID) (compute.Inventory, error) {
	var inv compute.Inventory
	body, err := c.Call(ctx, node, methodInventory, nil)
	if err != nil {
		return inv, err
	}
	if err := c.codec.Unmarshal(body, &inv); err != nil {
		return inv, err
	}
	if inv.Node != node {
		return inv, fmt.Errorf("pull inventory: node %s sent the one of %s", node, inv.Node)
	}
	return inv, nil
}

// handleInventory answers PullInventory.
func (g *gossip) handleInventory(context.Context, rpc.Peer, []byte) ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.body == nil {
		return nil, compute.Errorf(compute.CodeNotFound, "This node has published no inventory yet.")
	}
	return g.body, nil
}

// Members returns the nodes that gossip has seen since this node started, in
// the order of their ids, this node included.
func (c *Cluster) Members() []Member {
	c.gossip.mu.Lock()
	defer c.gossip.mu.Unlock()
	members := make([]Member, 0, len(c.gossip.members))
	for _, m := range c.gossip.members {
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b Member) int { return slices.Compare(a.ID.UUID[:], b.ID.UUID[:]) })
	return members
}

// Changed returns a channel that is closed at the next change of what Members
// returns. Take it before reading Members.
func (c *Cluster) Changed() <-chan struct{} {
	c.gossip.mu.Lock()
	defer c.gossip.mu.Unlock()
	return c.gossip.changed
}

// rpcAddress returns where gossip says that a node is, "" when it does not.
func (g *gossip) rpcAddress(id compute.NodeID) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.members[id]; m.Alive {
		return m.RPC
	}
	return ""
}

// claimedAddress returns where else somebody claims to be a node, "" when nobody
// does: a node that came back at another address, which memberlist does not
// believe before the old one has been dead for a while.
func (g *gossip) claimedAddress(id compute.NodeID) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.claims[id].rpc
}

// noteClaim keeps where else a member is said to be, and returns whether that is
// to be said: it is new, or stays so.
func (g *gossip) noteClaim(id compute.NodeID, rpc string, at time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.claims[id]
	if _, known := g.members[id]; !known || rpc == "" || before.rpc == rpc && at.Sub(before.told) < claimRepeat {
		return false
	}
	g.claims[id] = claim{rpc, at}
	return true
}

// gossipAddress returns where a node gossips, "" when it is not known.
func (g *gossip) gossipAddress(id compute.NodeID) string {
	if id == g.c.id {
		return g.advertise
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.members[id].Gossip
}

// note keeps a member. The caller does not hold mu.
func (g *gossip) note(m Member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !m.Alive && len(g.members) >= maxForgotten {
		delete(g.members, m.ID)
	} else {
		g.members[m.ID] = m
	}
	if _, known := g.members[m.ID]; !known || m.Alive && m.RPC == g.claims[m.ID].rpc {
		delete(g.claims, m.ID)
	}
	if !m.Alive {
		delete(g.bodies, m.ID)
	}
	alive := 0
	for _, known := range g.members {
		if known.Alive {
			alive++
		}
	}
	g.c.metrics.seen.Set(float64(alive))
	close(g.changed)
	g.changed = make(chan struct{})
}

// errStranger is why gossip ignores a node.
var errStranger = errors.New("not a node of this cluster")

func hashOf(body []byte) [16]byte {
	sum := sha256.Sum256(body)
	return [16]byte(sum[:16])
}
