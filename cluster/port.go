package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/pki"
	"berth/cluster/raftconf"
	"berth/cluster/rpc"
	"berth/cluster/transport"
	"berth/compute"
	"berth/loop"
)

// Limits of connections.
const (
	anonymousLife = time.Minute
	acceptRetry   = 100 * time.Millisecond
)

// port is the cluster port: it accepts, authenticates and dials connections.
type port struct{ *Cluster }

// serve accepts connections until ctx ends, then waits for those it has.
func (c port) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { c.listener.Close() })
	defer stop()
	config := pki.ServerConfig(c.ca, c.pair.Load, c.cfg.Now, c.protocols()...)
	for {
		conn, err := c.listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			c.logger.Warn("connection not accepted", "err", err)
			if !loop.Sleep(ctx, acceptRetry) {
				return nil
			}
			continue
		}
		g := c.unauthenticated.add(conn)
		c.work.Go(func() {
			defer c.unauthenticated.remove(g)
			c.welcomeConn(ctx, g, config)
		})
	}
}

// protocols returns the protocols of the cluster port; a worker speaks no raft.
func (c port) protocols() []string {
	if c.isWorker() {
		return []string{transport.ProtoRPC}
	}
	return []string{transport.ProtoRaft, transport.ProtoRPC}
}

// welcomeConn authenticates a connection and serves its protocol.
func (c port) welcomeConn(ctx context.Context, g *unauthenticatedConn, config *tls.Config) {
	raw := g.conn
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	conn, peer, err := c.accept(ctx, raw, config)
	if err != nil {
		stop()
		raw.Close()
		c.metrics.refused.Inc()
		c.logRefused(g.host, peer, err)
		return
	}
	if !peer.Anonymous() {
		c.unauthenticated.remove(g)
	}
	state := conn.ConnectionState()
	end := time.AfterFunc(c.lifeOf(state), func() { raw.Close() })
	release := func() {
		stop()
		end.Stop()
	}
	if state.NegotiatedProtocol == transport.ProtoRaft {
		// Raft closes it.
		if !c.layer.Offer(ctx, conn, release) {
			release()
			raw.Close()
		}
		return
	}
	defer release()
	if err := c.server.ServeConn(ctx, conn, peer); err != nil {
		c.logger.Debug("connection ended", "node", peer.ID, "err", err)
	}
}

// logRefused logs why a connection was refused, a few times a minute for each address.
// Any host that reaches the port could otherwise fill the log.
func (c port) logRefused(host string, peer rpc.Peer, err error) {
	if errors.Is(err, io.EOF) && peer.Anonymous() {
		c.logger.Debug("connection closed early", "address", host)
		return // Somebody checked whether the port is open, as health checks and package timing do.
	}
	kind := "handshake"
	if !peer.Anonymous() {
		kind = peer.ID.String()
	}
	dropped, ok := c.refusedLog.Allow(c.cfg.Now(), host+" "+kind)
	if dropped > 0 {
		c.logger.Warn("more connections refused", "count", dropped)
	}
	if ok {
		c.logger.Warn("connection refused", "node", peer.ID, "address", host, "err", err)
	}
}

// lifeOf returns the maximum lifetime of a connection: until its certificate
// expires, or just long enough to join without one.
func (c port) lifeOf(state tls.ConnectionState) time.Duration {
	if len(state.PeerCertificates) == 0 {
		return anonymousLife
	}
	return state.PeerCertificates[0].NotAfter.Sub(c.cfg.Now())
}

// accept does the handshake, authorizes the peer and sends it the result.
func (c port) accept(ctx context.Context, raw net.Conn, config *tls.Config) (*tls.Conn, rpc.Peer, error) {
	ctx, cancel := context.WithTimeout(ctx, transport.HandshakeTimeout)
	defer cancel()
	conn := tls.Server(transport.NewCorked(raw), config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, rpc.Peer{}, fmt.Errorf("handshake: %w", pki.Advise(transport.Advise(err), c.cfg.Now()))
	}
	if err := conn.SetWriteDeadline(time.Now().Add(transport.HandshakeTimeout)); err != nil {
		return nil, rpc.Peer{}, err
	}
	state := conn.ConnectionState()
	peer, err := c.judge(state)
	if err == nil && c.epochGuard.inOtherEpoch(peer, state) {
		return nil, peer, errors.Join(transport.EpochError(transport.EpochOf(state)), transport.RefuseEpoch(conn, c.Epoch()))
	}
	if err != nil {
		return nil, peer, errors.Join(err, transport.Refuse(conn, err))
	}
	if err := transport.Welcome(conn); err != nil {
		return nil, peer, fmt.Errorf("greet: %w", err)
	}
	return conn, peer, conn.SetWriteDeadline(time.Time{})
}

// judge returns the peer, and an error if it may not speak its protocol. TLS
// has verified its certificate, if any.
func (c port) judge(state tls.ConnectionState) (rpc.Peer, error) {
	if len(state.PeerCertificates) == 0 {
		if state.NegotiatedProtocol == transport.ProtoRaft {
			return rpc.Peer{}, errors.New("raft is spoken with a server's certificate only: " +
				"have the machine join, with a token of berth admin token create")
		}
		return rpc.Peer{}, nil
	}
	id, err := pki.IdentityOf(state.PeerCertificates[0])
	if err != nil {
		return rpc.Peer{}, err
	}
	peer := rpc.Peer{ID: id.Node, Role: id.Role}
	switch {
	case id.Cluster != c.clusterID:
		return peer, fmt.Errorf("the certificate is of cluster %s, this is %s: correct the address, or have the machine "+
			"join this cluster with another data_dir and a token of berth admin token create", id.Cluster, c.clusterID)
	case c.removed(id.Node) && !c.votes(id.Node):
		return peer, transport.ErrRemoved()
	case state.NegotiatedProtocol == transport.ProtoRPC:
		return peer, nil
	case id.Role != compute.RoleServer:
		return peer, fmt.Errorf("a node of role %s may not speak raft: to make it a server, remove it with berth admin node "+
			"remove and have it join with another data_dir and a token of berth admin token create --role server", id.Role)
	case !c.mayReplicate(id.Node):
		return peer, fmt.Errorf("node %s is not in the raft configuration: it comes in once the leader hears it, so see "+
			"that it reaches every server; if berth admin node list does not show it, have it join with another data_dir and a "+
			"token of berth admin token create", id.Node)
	}
	return peer, nil
}

// mayReplicate reports whether a server may speak raft to this one: it is in
// the configuration. A node without a leader accepts every server, because its
// configuration may be too old to contain a new one. So does a node that
// rejoined with an empty replica and has not caught up.
func (c port) mayReplicate(id compute.NodeID) bool {
	if c.behind.Load() {
		return true
	}
	if _, known := c.Leader(); !known {
		return true
	}
	for _, s := range c.servers() {
		if s.ID == raft.ServerID(id.String()) {
			return true
		}
	}
	return false
}

// votes reports whether a node is a voter, or may still be one. It uses the
// newest configuration here. While that is not known to be committed, it also
// uses the previous one, because a former leader may have written the newest. A
// removed server stays a voter until its vote can be taken without losing the
// quorum, and is not disconnected before.
func (c port) votes(id compute.NodeID) bool {
	if c.raft == nil {
		return false
	}
	future := c.raft.GetConfiguration()
	if future.Error() != nil {
		return false
	}
	return mayVote(id, future.Configuration(), future.Index(), c.raft.CommitIndex())
}

// mayVote implements votes for a configuration with its index and the newest
// committed index.
func mayVote(id compute.NodeID, newest raft.Configuration, index, committed uint64) bool {
	return index > committed || slices.ContainsFunc(newest.Servers, func(s raft.Server) bool {
		return s.ID == raftconf.ServerID(id) && s.Suffrage == raft.Voter
	})
}

func (c *Cluster) removed(id compute.NodeID) bool {
	_, removed, _ := c.cfg.Directory.Node(id)
	return removed
}

// dial opens an authenticated connection to a node, at the first of its known
// addresses that answers as that node.
func (c port) dial(ctx context.Context, id compute.NodeID, proto string) (net.Conn, error) {
	addresses := c.port.addressesOf(id)
	if len(addresses) == 0 {
		return nil, fmt.Errorf("dial node %s: no address known", id)
	}
	config := pki.ClientConfig(c.ca, c.pair.Load, c.cfg.Now, proto, func(got pki.Identity) error {
		if got.Cluster != c.clusterID || got.Node != id {
			return fmt.Errorf("dialled node %s, but node %s of cluster %s answered", id, got.Node, got.Cluster)
		}
		if proto == transport.ProtoRaft && got.Role != compute.RoleServer {
			return fmt.Errorf("node %s is not a server", id)
		}
		return nil
	})
	config.ServerName = transport.EpochName(c.Epoch())
	conn, errs := transport.DialFirst(ctx, addresses, func(ctx context.Context, address string) (net.Conn, error) {
		return transport.DialTLS(ctx, c.cfg.Dial, address, config)
	})
	for _, err := range errs {
		if e, ok := errors.AsType[transport.EpochError](err); ok {
			c.epochGuard.noteEpoch(id, uint64(e))
		}
	}
	if conn != nil {
		return conn, nil
	}
	return nil, fmt.Errorf("dial node %s: %w", id, errors.Join(errs...))
}

// openLink dials id for calls or streams.
func (c port) openLink(ctx context.Context, id compute.NodeID) (*rpc.Client, error) {
	conn, err := c.dial(ctx, id, transport.ProtoRPC)
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
	if err := c.mayAsk(ctx, node); err != nil {
		return nil, err
	}
	client, err := c.links.Get(ctx, node)
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
	if err := c.mayAsk(ctx, node); err != nil {
		return nil, nil, err
	}
	client, err := c.streams.Get(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	return client.Open(ctx, method, request)
}

// mayAsk refuses a call to another node within a context that stays here (compute.StayHere).
func (c *Cluster) mayAsk(ctx context.Context, node compute.NodeID) error {
	if node == c.id {
		return nil
	}
	if err := compute.MayAsk(ctx); err != nil {
		return fmt.Errorf("%w: %w", rpc.ErrNotSent, err)
	}
	return nil
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
