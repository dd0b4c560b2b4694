package cluster

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/time/rate"

	"berth/cluster/datadir"
	"berth/cluster/gossip"
	"berth/cluster/pki"
	"berth/cluster/rpc"
	"berth/cluster/transport"
	"berth/compute"
	"berth/fault"
	"berth/loop"
)

// Limits of joining.
const (
	joinTimeout  = 15 * time.Second // One attempt at one server.
	joinPauseMin = 200 * time.Millisecond
	joinPauseMax = 5 * time.Second
	joinsPerSec  = 5 // From nodes without a certificate, per server.
	joinsBurst   = 20
)

// joinRequest is the request of a joining node.
type joinRequest struct {
	TokenID string       `cbor:"1,keyasint"`
	Secret  string       `cbor:"2,keyasint"`
	Node    compute.Node `cbor:"3,keyasint"`
	CSR     []byte       `cbor:"4,keyasint"`
}

// joinAnswer makes the node a member.
type joinAnswer struct {
	Cluster compute.UUID `cbor:"1,keyasint"`
	CA      []byte       `cbor:"2,keyasint"` // PEM.
	Cert    []byte       `cbor:"3,keyasint"` // DER.
	Peers   []joinPeer   `cbor:"4,keyasint"`
	Keyring []byte       `cbor:"6,keyasint,omitempty"` // JSON.

	Epoch uint64 `cbor:"8,keyasint,omitempty"` // The cluster's epoch.

	// For servers only.
	CAKey   []byte `cbor:"5,keyasint,omitempty"` // PEM.
	Secrets []byte `cbor:"7,keyasint,omitempty"`
}

// joinPeer is a server that the new node may contact.
type joinPeer struct {
	ID     compute.NodeID `cbor:"1,keyasint"`
	RPC    string         `cbor:"2,keyasint"`
	Gossip string         `cbor:"3,keyasint"`
}

// joinLimit bounds the attempts of nodes without a certificate.
type joinLimit struct{ limiter *rate.Limiter }

func newJoinLimit() *joinLimit {
	return &joinLimit{rate.NewLimiter(joinsPerSec, joinsBurst)}
}

// joiner is both sides of joining: the node that asks and the leader that admits it.
type joiner struct{ *Cluster }

// handleJoin admits a node. Any server accepts the request; the leader decides.
func (c joiner) handleJoin(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	if peer.Anonymous() && !c.joins.limiter.Allow() {
		return nil, compute.Errorf(compute.CodeRateLimited, "Too many nodes try to join.").Retry(time.Second)
	}
	if c.terms.ready() == 0 {
		leader, known := c.Leader()
		if !known || leader == c.id || !peer.Anonymous() {
			return nil, errNoLeader()
		}
		return c.Call(ctx, leader, methodJoin, data)
	}
	if !peer.Anonymous() && peer.Role != compute.RoleServer {
		return nil, compute.Errorf(compute.CodeForbidden, "Only servers may forward a node that joins.")
	}
	var req joinRequest
	if err := c.codec.Unmarshal(data, &req); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The request to join cannot be read: %w", err)
	}
	if err := CheckNode(&req.Node); err != nil {
		return nil, err
	}
	if !pki.IsTokenID(req.TokenID) {
		return nil, compute.Errorf(compute.CodeForbidden,
			"Nobody joins without a join token: make one with berth admin token create.").Named("token_unknown")
	}
	answer, err := c.admit(ctx, req)
	if err != nil {
		c.logNotAdmitted(req.Node.ID, err)
		return nil, err
	}
	c.logger.Info("node admitted", "node", req.Node.ID)
	return c.codec.Marshal(answer), nil
}

// logNotAdmitted logs why a node was not admitted, a few times a minute. Any host that
// reaches the cluster port could otherwise fill the log.
func (c joiner) logNotAdmitted(id compute.NodeID, err error) {
	if dropped, ok := c.refusedLog.Allow(c.cfg.Now(), methodJoin); ok {
		c.logger.Warn("node not admitted", "node", id, "count", dropped, "err", err)
	}
}

// CheckNode refuses a description of a node that exceeds a limit.
func CheckNode(n *compute.Node) error {
	switch {
	case n.ID.IsZero():
		return compute.Errorf(compute.CodeInvalid, "The node that joins has no id.")
	case len(n.Name) > maxNameLength, len(n.API) > maxURLLength, len(n.Metrics) > maxURLLength,
		len(n.RPC) > maxAddressLength, len(n.Gossip) > maxAddressLength, len(n.Version) > maxVersionLength:
		return compute.Errorf(compute.CodeInvalid, "A name or address of the node that joins is too long.")
	case n.Role != compute.RoleServer && n.Role != compute.RoleWorker:
		return compute.Errorf(compute.CodeInvalid, "The node that joins asks for an unknown role.")
	}
	return nil
}

// admit asks the registry and makes the node a member. It can be repeated.
func (c joiner) admit(ctx context.Context, req joinRequest) (*joinAnswer, error) {
	if c.removed(req.Node.ID) {
		return nil, transport.ErrRemoved()
	}
	if c.heartbeats.alive(req.Node.ID) {
		return nil, errNodeAlive(req.Node.ID)
	}
	introduced := compute.Node{
		ID: req.Node.ID, Name: req.Node.Name, Role: req.Node.Role, API: req.Node.API, RPC: req.Node.RPC,
		Gossip: req.Node.Gossip, Metrics: req.Node.Metrics, Version: req.Node.Version,
		Format: req.Node.Format,
	}
	identity := pki.Identity{Cluster: c.clusterID, Role: req.Node.Role, Node: req.Node.ID}
	cert, err := c.ca.IssueForRequest(c.cfg.Rand, identity, req.CSR, c.cfg.Now())
	if err != nil {
		return nil, err
	}
	fault.Point("cluster.join.admit")
	err = c.cfg.Registry.Admit(ctx, Admission{
		TokenID:    req.TokenID,
		SecretHash: sha256.Sum256([]byte(req.Secret)),
		Node:       introduced,
		Key:        sha256.Sum256(cert.RawSubjectPublicKeyInfo),
	})
	if err != nil {
		return nil, err
	}
	caPEM, keyPEM := c.ca.PEM()
	answer := &joinAnswer{Cluster: c.clusterID, CA: caPEM, Cert: cert.Raw, Peers: c.joinPeers(), Epoch: c.Epoch()}
	if answer.Keyring, err = c.gossip.ExportKeyring(); err != nil {
		return nil, err
	}
	if req.Node.Role != compute.RoleServer {
		return answer, nil
	}
	fault.Point("cluster.join.add")
	if err := c.members.addServer(req.Node.ID, req.Node.RPC); err != nil {
		e := compute.Errorf(compute.CodeUnavailable, "The node could not enter the raft configuration: %w", err)
		return nil, e.Retry(time.Second)
	}
	fault.Point("cluster.join.added")
	answer.CAKey, answer.Secrets = keyPEM, c.cfg.ServerSecrets()
	return answer, nil
}

// errNodeAlive refuses a join request in the name of a node that has joined and is
// up: it is a late duplicate, or comes from somebody that has found the token.
func errNodeAlive(id compute.NodeID) error {
	return compute.Errorf(compute.CodeConflict, "Node %s has joined and is up. If this is that node, its process runs "+
		"elsewhere: end that and try again after %s; if it is another one, give it a data directory and a join token of "+
		"its own.", id, aliveFor).Named("node_up")
}

// joinPeers returns the servers of the cluster, this one included.
func (c joiner) joinPeers() []joinPeer {
	var peers []joinPeer
	for _, s := range c.Servers() {
		peers = append(peers, joinPeer{ID: s.ID, RPC: s.Address, Gossip: c.gossip.AddressOf(s.ID)})
	}
	return peers
}

// join makes this node a member of the cluster that its token names. It retries
// until ctx ends or a refusal is permanent.
func (c joiner) join(ctx context.Context) error {
	token, err := pki.ParseJoinToken(c.cfg.JoinToken)
	if err != nil {
		return err
	}
	if err := c.prepareJoin(); err != nil {
		return err
	}
	key, err := c.joiningKey()
	if err != nil {
		return err
	}
	csr, err := pki.NewRequest(c.cfg.Rand, key)
	if err != nil {
		return fmt.Errorf("join cluster: %w", err)
	}
	req := joinRequest{TokenID: token.ID, Secret: token.Secret, CSR: csr, Node: compute.Node{
		ID: c.id, Name: c.cfg.Name, Role: c.cfg.Role, API: c.cfg.API, RPC: c.advertise,
		Gossip: c.gossip.Address(), Metrics: c.cfg.Metrics, Version: c.cfg.Version,
		Format: c.cfg.Format,
	}}
	wait := joinPauseMin
	for {
		answer, err := c.askToJoin(ctx, token, c.codec.Marshal(req))
		if err == nil {
			return c.becomeMember(token, key, answer)
		}
		if final(err) {
			return fmt.Errorf("join cluster: %w", err)
		}
		c.logger.Warn("join failed, retrying", "err", err)
		if !loop.Sleep(ctx, wait) {
			return fmt.Errorf("join cluster: %w", err)
		}
		wait = min(2*wait, joinPauseMax)
	}
}

// prepareJoin saves the node's id first, so that a retry after a crash comes from
// the same node and does not use the token twice.
func (c joiner) prepareJoin() (err error) {
	record := c.dir.Record()
	if c.id = record.NodeID; c.id.IsZero() {
		c.id = c.cfg.NodeID
	}
	if c.id.IsZero() {
		if c.id, err = newNodeID(c.cfg.Rand); err != nil {
			return err
		}
	}
	if err := c.dir.Put(datadir.Record{NodeID: c.id, State: datadir.StateJoining}); err != nil {
		return err
	}
	fault.Point("cluster.join.prepared")
	return nil
}

// joiningKey returns the key for this node's certificate request. It is on disk
// and the same after a crash, because a use of the token is bound to it.
func (c joiner) joiningKey() (ed25519.PrivateKey, error) {
	dir := c.dir.Path(datadir.PKIDir)
	key, err := pki.LoadKey(dir)
	if err == nil {
		return key, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		c.logger.Warn("key unusable, making another", "err", err)
	}
	if key, err = pki.NewKey(c.cfg.Rand); err != nil {
		return nil, err
	}
	return key, pki.SaveKey(dir, key)
}

// final reports whether a failed attempt to join would fail again.
func final(err error) bool {
	if errors.Is(err, pki.ErrPin) {
		return true
	}
	e, ok := errors.AsType[*compute.Error](err)
	if !ok {
		return false
	}
	switch e.Code {
	case compute.CodeUnavailable, compute.CodeRateLimited, compute.CodeTimeout, compute.CodeInternal:
		return false
	default:
		return true
	}
}

// askToJoin asks each of the servers in turn until one answers.
func (c joiner) askToJoin(ctx context.Context, token pki.JoinToken, request []byte) (*joinAnswer, error) {
	var errs []error
	for _, host := range c.cfg.JoinHosts {
		answer, err := c.askHost(ctx, host, token, request)
		if err == nil {
			return answer, nil
		}
		if final(err) {
			return nil, err
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (c joiner) askHost(ctx context.Context, host string, token pki.JoinToken, request []byte) (*joinAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	conn, err := transport.DialTLS(ctx, c.cfg.Dial, host, pki.PinnedConfig(token.Pin, c.cfg.Now, transport.ProtoRPC))
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", host, err)
	}
	client, err := rpc.NewClient(conn, c.codec, c.logger)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	defer client.Close()
	data, err := client.Call(ctx, methodJoin, request)
	if err != nil {
		return nil, err
	}
	answer := new(joinAnswer)
	return answer, c.codec.Unmarshal(data, answer)
}

// becomeMember checks the answer and saves its content.
func (c joiner) becomeMember(token pki.JoinToken, key ed25519.PrivateKey, answer *joinAnswer) error {
	ca, err := pki.ParseCA(answer.CA, answer.CAKey)
	if err != nil {
		return fmt.Errorf("join cluster: %w", err)
	}
	if ca.Pin() != token.Pin {
		return fmt.Errorf("join cluster: %w", pki.ErrPin)
	}
	cert, err := x509.ParseCertificate(answer.Cert)
	if err != nil {
		return fmt.Errorf("join cluster: %w", err)
	}
	got, err := ca.Verify(cert, c.cfg.Now())
	if err != nil {
		return fmt.Errorf("join cluster: %w", err)
	}
	want := pki.Identity{Cluster: answer.Cluster, Role: c.cfg.Role, Node: c.id}
	if got != want || !key.Public().(ed25519.PublicKey).Equal(cert.PublicKey) {
		return fmt.Errorf("join cluster: the certificate is for %s, not for %s", got.URI(), want.URI())
	}
	fault.Point("cluster.join.answered")
	c.ca, c.clusterID = ca, answer.Cluster
	if err := c.cfg.Accept(answer.Cluster, bytes.Clone(answer.Secrets)); err != nil {
		return fmt.Errorf("take over secrets: %w", err)
	}
	if err := pki.SaveCA(c.dir.Path(datadir.PKIDir), ca); err != nil {
		return err
	}
	if err := c.identity.usePair(pki.Pair(cert, key, ca)); err != nil {
		return err
	}
	if err := gossip.ImportKeyring(c.dir, answer.Keyring); err != nil {
		return err
	}
	fault.Point("cluster.join.save")
	record := c.dir.Record()
	record.Peers, record.Epoch = nil, answer.Epoch
	for _, p := range answer.Peers {
		if p.ID != c.id {
			record.Peers = append(record.Peers, datadir.Peer(p))
		}
	}
	return c.dir.Put(record)
}
