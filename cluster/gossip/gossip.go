package gossip

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"

	"berth/cluster/datadir"
	"berth/cluster/liblog"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/loop"
)

// Limits of gossip.
const (
	publishTimeout = 2 * time.Second
	rejoinMin      = time.Second // While a server is missing; doubled up to rejoinMax.
	rejoinMax      = 30 * time.Second
	reclaimAfter   = 30 * time.Second // A dead node may come back at another address after this time.

	// News leave so often. memberlist's 200 ms for local networks wake a node that has none.
	gossipInterval = 500 * time.Millisecond

	workerProbeInterval = 5 * time.Second
	workerProbeTimeout  = 3 * time.Second
)

// Versions of the delegate's exchange. Raise the maximum one release before
// any node speaks it: peers whose ranges do not overlap refuse each other.
const (
	delegateVersion    = 1
	delegateVersionMin = 1
	delegateVersionMax = 1
)

// Config configures gossip before the node has an identity.
type Config struct {
	Listen         string // host:port, TCP and UDP.
	Name           string
	Role           compute.Role
	API, Metrics   string // Full URLs.
	Version        string
	AdvertisedHost func(listening net.IP) (string, error)
	Rand           io.Reader
	Codec          rpc.Codec
	Logger         *slog.Logger
	Closed         <-chan struct{} // Ends memberlist's log.
	Alive          prometheus.Gauge
	Servers        func() []compute.NodeID // The servers that should be visible.
	Lookup         func(id compute.NodeID) (removed, known bool)
}

// Identity identifies this node. It is known once the node has joined.
type Identity struct {
	Node    compute.NodeID
	Cluster compute.UUID
	RPC     string // host:port of the cluster port, as others reach it.
}

// Gossip is this node's part in the gossip of the cluster. Its methods may be
// called from any goroutine.
type Gossip struct {
	cfg       Config
	dir       *datadir.Dir
	id        Identity
	transport *transport
	list      *memberlist.Memberlist // Nil until Open.
	keys      *memberlist.Keyring    // Nil until Open.
	advertise string
	publish   chan struct{} // Signals that the meta changed.

	mu      sync.Mutex
	own     meta
	body    []byte // The encoded inventory of this node.
	members map[compute.NodeID]Member
	bodies  map[compute.NodeID]compute.Inventory
	claims  map[compute.NodeID]claim
	refused bool          // Since the last join a node was refused that the state may know soon.
	changed chan struct{} // Closed at the next change.
}

// New returns gossip that holds no socket yet.
func New(cfg Config) *Gossip {
	return &Gossip{
		cfg:     cfg,
		publish: make(chan struct{}, 1),
		members: make(map[compute.NodeID]Member),
		bodies:  make(map[compute.NodeID]compute.Inventory),
		claims:  make(map[compute.NodeID]claim),
		changed: make(chan struct{}),
	}
}

// Listen opens the gossip port, TCP and UDP on one number. It precedes
// joining, because a joining node reports its gossip address.
func (g *Gossip) Listen(dir *datadir.Dir) error {
	g.dir = dir
	host, portText, err := net.SplitHostPort(g.cfg.Listen)
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
	inner, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
		BindAddrs: []string{ip.IP.String()},
		BindPort:  port,
		Logger:    log.New(liblog.Memberlist(g.cfg.Logger, g.cfg.Closed), "", 0),
	})
	if err != nil {
		return fmt.Errorf("open gossip port: %w", err)
	}
	g.transport = newTransport(inner)
	go g.transport.run()
	if port == 0 {
		port = g.transport.GetAutoBindPort()
	}
	if host, err = g.cfg.AdvertisedHost(ip.IP); err != nil {
		return err
	}
	g.advertise = net.JoinHostPort(host, strconv.Itoa(port))
	return nil
}

// Open starts gossiping.
func (g *Gossip) Open(id Identity) error {
	if err := g.loadKeyring(); err != nil {
		return err
	}
	address, err := net.ResolveUDPAddr("udp", g.advertise)
	if err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	g.id = id
	g.mu.Lock()
	g.own = meta{
		Name: g.cfg.Name, Role: g.cfg.Role, RPC: id.RPC, API: g.cfg.API,
		Metrics: g.cfg.Metrics, Version: g.cfg.Version,
		InventoryVersion: g.own.InventoryVersion, InventoryHash: g.own.InventoryHash,
	}
	g.mu.Unlock()
	if g.list, err = memberlist.Create(g.settings(address)); err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	return nil
}

// settings returns memberlist's settings for a node at address.
func (g *Gossip) settings(address *net.UDPAddr) *memberlist.Config {
	cfg := memberlist.DefaultLANConfig()
	cfg.Name = g.id.Node.String() // A node that moves keeps its name.
	cfg.Transport = g.transport
	cfg.AdvertiseAddr = address.IP.String()
	cfg.AdvertisePort = address.Port
	cfg.GossipInterval = gossipInterval
	cfg.Keyring = g.keys
	cfg.Label = g.id.Cluster.String()
	cfg.RequireNodeNames = true
	cfg.DeadNodeReclaimTime = reclaimAfter
	cfg.Delegate = (*delegate)(g)
	cfg.Events = (*delegate)(g)
	cfg.Alive = (*delegate)(g)
	cfg.Conflict = (*delegate)(g)
	cfg.DelegateProtocolVersion = delegateVersion
	cfg.DelegateProtocolMin = delegateVersionMin
	cfg.DelegateProtocolMax = delegateVersionMax
	cfg.LogOutput = liblog.Memberlist(g.cfg.Logger, g.cfg.Closed)
	cfg.EnableCompression = false // The messages are short: compressing costs more than it saves.
	if g.isWorker() {
		// There are many workers. If all of them probed every second, they would all
		// suspect one slow machine, and each suspicion goes to all nodes. Servers
		// probe often enough.
		cfg.ProbeInterval, cfg.ProbeTimeout = workerProbeInterval, workerProbeTimeout
	}
	return cfg
}

func (g *Gossip) isWorker() bool { return g.cfg.Role == compute.RoleWorker }

// Close stops gossiping without leaving: a restart is not a leave.
func (g *Gossip) Close() error {
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

// closeUnopened closes the port of a node that never gossiped. The transport's
// shutdown waits until somebody has taken the packets and streams that arrived
// meanwhile.
func (g *Gossip) closeUnopened() error {
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

// Run publishes changes of this node's meta until ctx ends.
func (g *Gossip) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.publish:
			if err := g.list.UpdateNode(publishTimeout); err != nil {
				g.cfg.Logger.Debug("gossip meta not published", "err", err)
			}
		}
	}
}

// Rejoin joins the known nodes repeatedly until ctx ends: two halves of a
// cluster that were partitioned for long forget each other and do not merge by
// themselves.
func (g *Gossip) Rejoin(ctx context.Context) error {
	delay := rejoinMin
	for {
		g.join()
		if !loop.Sleep(ctx, delay+rand.N(delay)) {
			return nil
		}
		delay = min(2*delay, rejoinMax)
		if g.Complete() {
			delay = rejoinMax
		}
	}
}

// Complete reports whether gossip sees every server and has refused no unknown
// node since it last joined. The state of a server that has just started is
// behind, and a node that was refused does not come back soon.
func (g *Gossip) Complete() bool {
	servers := g.cfg.Servers() // Takes the lock itself.
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refused {
		return false
	}
	for _, id := range servers {
		if !g.members[id].Alive {
			return false
		}
	}
	return true
}

// join exchanges the state with every peer whose address is known and that is
// not visible.
func (g *Gossip) join() {
	var addresses []string
	g.mu.Lock()
	g.refused = false
	for _, p := range g.dir.Record().Peers {
		if p.Gossip != "" && p.ID != g.id.Node {
			addresses = append(addresses, namedAddress(p.ID, p.Gossip))
		}
	}
	for id, m := range g.members {
		if m.Role == compute.RoleWorker && m.Alive || g.isWorker() {
			continue // There are many workers, and they join servers by themselves.
		}
		address := namedAddress(id, m.Gossip)
		if id != g.id.Node && !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	g.mu.Unlock()
	if len(addresses) == 0 {
		return
	}
	if _, err := g.list.Join(addresses); err != nil {
		g.cfg.Logger.Debug("gossip join incomplete", "err", err)
	}
}

// namedAddress returns an address to join in memberlist's form for required
// names.
func namedAddress(id compute.NodeID, hostPort string) string {
	return id.String() + "/" + hostPort
}

// Address returns host:port of the gossip port as others reach it.
func (g *Gossip) Address() string { return g.advertise }

// AddressOf returns the gossip address of a node, "" when it is unknown.
func (g *Gossip) AddressOf(id compute.NodeID) string {
	if id == g.id.Node {
		return g.advertise
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.members[id].Gossip
}

// RPCAddress returns a node's cluster port as it announces it, "" when the node
// is not visible.
func (g *Gossip) RPCAddress(id compute.NodeID) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.members[id]; m.Alive {
		return m.RPC
	}
	return ""
}

func hashOf(body []byte) [16]byte {
	sum := sha256.Sum256(body)
	return [16]byte(sum[:16])
}
