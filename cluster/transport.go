package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/pki"
	"berth/cluster/raftconf"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/loop"
)

// Protocols of the cluster port, by ALPN.
const (
	protoRaft = "raft/1" // Servers only.
	protoRPC  = "rpc/1"
)

// Limits of connections.
const (
	handshakeTimeout   = 5 * time.Second
	maxUnauthenticated = 256 // Connections that have not finished their handshake.
	anonymousLife      = time.Minute
	maxReason          = 1024
	acceptRetry        = 100 * time.Millisecond
	raftBacklog        = 16 // Accepted connections that raft has not fetched yet.
)

// The first byte that the accepting side sends after the handshake. TLS alone
// would report to a refused node only that its certificate is bad.
const (
	welcome = 0
	refused = 1 // Followed by the reason: two bytes of length, then text.

	otherEpoch = 2 // Followed by the epoch of this side: eight bytes.
)

// port is the cluster port: it accepts, authenticates and dials connections.
type port struct{ *Cluster }

// serve accepts connections until ctx ends, then waits for those it has.
func (c port) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { c.listener.Close() })
	defer stop()
	config := pki.ServerConfig(c.ca, c.pair.Load, c.cfg.Now, c.protocols()...)
	slots := make(chan struct{}, maxUnauthenticated)
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
		select {
		case slots <- struct{}{}:
			c.work.Go(func() { c.welcomeConn(ctx, conn, config, func() { <-slots }) })
		default:
			c.metrics.refused.Inc()
			conn.Close()
		}
	}
}

// protocols returns the protocols of the cluster port; a worker speaks no raft.
func (c port) protocols() []string {
	if c.isWorker() {
		return []string{protoRPC}
	}
	return []string{protoRaft, protoRPC}
}

// welcomeConn authenticates a connection and serves its protocol. It calls
// authenticated when the handshake has ended.
func (c port) welcomeConn(ctx context.Context, raw net.Conn, config *tls.Config, authenticated func()) {
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	conn, peer, err := c.accept(ctx, raw, config)
	authenticated()
	if err != nil {
		stop()
		raw.Close()
		c.metrics.refused.Inc()
		c.logger.Warn("connection refused", "node", peer.ID, "err", err)
		return
	}
	state := conn.ConnectionState()
	end := time.AfterFunc(c.lifeOf(state), func() { raw.Close() })
	release := func() {
		stop()
		end.Stop()
	}
	if state.NegotiatedProtocol == protoRaft {
		// Raft closes it.
		if !c.layer.offer(ctx, &closeHook{Conn: conn, hook: release}) {
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
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn := tls.Server(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, rpc.Peer{}, fmt.Errorf("handshake: %w", pki.Advise(withAdvice(err), c.cfg.Now()))
	}
	if err := conn.SetWriteDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, rpc.Peer{}, err
	}
	state := conn.ConnectionState()
	peer, err := c.judge(state)
	if err == nil && c.epochGuard.inOtherEpoch(peer, state) {
		_, writeErr := conn.Write(binary.BigEndian.AppendUint64([]byte{otherEpoch}, c.Epoch()))
		return nil, peer, errors.Join(epochError(epochOf(state)), writeErr, conn.CloseWrite())
	}
	if err != nil {
		reason := err.Error()[:min(len(err.Error()), maxReason)]
		message := binary.BigEndian.AppendUint16([]byte{refused}, uint16(len(reason)))
		_, writeErr := conn.Write(append(message, reason...))
		return nil, peer, errors.Join(err, writeErr, conn.CloseWrite())
	}
	if _, err := conn.Write([]byte{welcome}); err != nil {
		return nil, peer, fmt.Errorf("greet: %w", err)
	}
	return conn, peer, conn.SetWriteDeadline(time.Time{})
}

// judge returns the peer, and an error if it may not speak its protocol. TLS
// has verified its certificate, if any.
func (c port) judge(state tls.ConnectionState) (rpc.Peer, error) {
	if len(state.PeerCertificates) == 0 {
		if state.NegotiatedProtocol == protoRaft {
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
		return peer, errRemoved()
	case state.NegotiatedProtocol == protoRPC:
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

// errRemoved refuses a node that was removed from the cluster.
func errRemoved() *compute.Error {
	return compute.Errorf(compute.CodeForbidden, "This node was removed from the cluster.").Named("node_removed")
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
		if proto == protoRaft && got.Role != compute.RoleServer {
			return fmt.Errorf("node %s is no server", id)
		}
		return nil
	})
	config.ServerName = epochName(c.Epoch())
	conn, errs := dialFirst(ctx, addresses, func(ctx context.Context, address string) (net.Conn, error) {
		return dialTLS(ctx, c.cfg.Dial, address, config)
	})
	for _, err := range errs {
		if e, ok := errors.AsType[epochError](err); ok {
			c.epochGuard.noteEpoch(id, uint64(e))
		}
	}
	if conn != nil {
		return conn, nil
	}
	return nil, fmt.Errorf("dial node %s: %w", id, errors.Join(errs...))
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialTLS connects, does the handshake and awaits the welcome, all within
// handshakeTimeout.
func dialTLS(ctx context.Context, dial dialFunc, address string, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	raw, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("handshake with %s: %w", address, withAdvice(err))
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetReadDeadline(deadline); err != nil {
		raw.Close()
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	err = awaitWelcome(conn)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("%s: %w", address, withAdvice(err))
	}
	return conn, nil
}

// withAdvice adds advice to the error when the other side refused this node's
// certificate. TLS has no error types for that, and a dialing side does not
// learn the reason.
func withAdvice(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "remote error: tls: expired certificate"):
		return fmt.Errorf("%w: by the clock there this node's certificate is not valid; compare the clocks of both "+
			"machines, and set the wrong one (timedatectl set-ntp true)", err)
	case strings.Contains(text, "remote error: tls: unknown certificate authority"):
		return fmt.Errorf("%w: this node's certificate is not of the cluster there; correct the address, or copy ca.crt, "+
			"and on a server ca.key, in DATA_DIR/pki from a server of that cluster", err)
	case strings.Contains(text, "remote error: tls: bad certificate"):
		return fmt.Errorf("%w: the machine there does not accept this node's certificate, and its log says why: it looks "+
			"for another cluster or another node at this address, so correct it there; or one of the two clocks is wrong", err)
	}
	return err
}

// awaitWelcome reads the accepting side's result.
func awaitWelcome(r io.Reader) error {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:1]); err != nil {
		return fmt.Errorf("await welcome: %w", err)
	}
	if head[0] == welcome {
		return nil
	}
	if head[0] == otherEpoch {
		var epoch [8]byte
		if _, err := io.ReadFull(r, epoch[:]); err != nil {
			return fmt.Errorf("await welcome: %w", err)
		}
		return epochError(binary.BigEndian.Uint64(epoch[:]))
	}
	if _, err := io.ReadFull(r, head[1:]); err != nil {
		return fmt.Errorf("await welcome: %w", err)
	}
	reason := make([]byte, min(int(binary.BigEndian.Uint16(head[1:])), maxReason))
	if _, err := io.ReadFull(bufio.NewReader(r), reason); err != nil {
		return fmt.Errorf("await welcome: %w", err)
	}
	if gone := errRemoved(); string(reason) == gone.Error() {
		return gone
	}
	return fmt.Errorf("refused: %s", reason)
}

// closeHook calls hook when the connection is closed.
type closeHook struct {
	net.Conn
	hook func()
}

func (h *closeHook) Close() error {
	h.hook()
	return h.Conn.Close()
}

// raftLayer is the raft transport's view of the cluster port. Its addresses are
// node ids: dialing looks the address up and checks the identity of the other
// side.
type raftLayer struct {
	accepted  chan net.Conn
	closed    chan struct{}
	advertise string
	dial      func(ctx context.Context, id compute.NodeID, proto string) (net.Conn, error)
}

// offer passes a connection to raft; it reports false when raft has stopped.
func (l *raftLayer) offer(ctx context.Context, conn net.Conn) bool {
	select {
	case l.accepted <- conn:
		return true
	case <-l.closed:
	case <-ctx.Done():
	}
	return false
}

// Accept returns the next connection of another server.
func (l *raftLayer) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. The transport calls it once.
func (l *raftLayer) Close() error {
	close(l.closed)
	return nil
}

// Addr returns the advertised address.
func (l *raftLayer) Addr() net.Addr { return layerAddr(l.advertise) }

// Dial connects to the server whose id is address.
func (l *raftLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	id, err := compute.ParseNodeID(string(address))
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", address, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.dial(ctx, id, protoRaft)
}

// ServerAddr makes the transport dial ids; see Dial.
func (l *raftLayer) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	return raft.ServerAddress(id), nil
}

type layerAddr string

func (layerAddr) Network() string  { return "tcp" }
func (a layerAddr) String() string { return string(a) }
