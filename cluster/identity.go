package cluster

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"fmt"
	"io"
	"time"

	"berth/cluster/datadir"
	"berth/cluster/gossip"
	"berth/cluster/pki"
	"berth/compute"
	"berth/fault"
	"berth/loop"
)

// freshness is how much of the node exists at its start.
type freshness int

const (
	freshNone    freshness = iota // A member restarts.
	freshReplica                  // A new node joined.
	freshCluster                  // A new node makes the cluster.
)

// renewCheck is how often the age of the certificate is checked.
const renewCheck = time.Minute

// identity is this node's identity and certificate.
type identity struct{ *Cluster }

// takeIdentity loads the node's identity, or gets one by making a cluster or
// joining one.
func (c identity) takeIdentity(ctx context.Context) (freshness, error) {
	record := c.dir.Record()
	if c.cfg.NodeID != record.NodeID && !c.cfg.NodeID.IsZero() && !record.NodeID.IsZero() {
		return 0, compute.Errorf(compute.CodeConflict, "The data directory belongs to node %s.", record.NodeID)
	}
	switch {
	case record.State == datadir.StateMember && c.isWorker():
		return freshNone, c.loadWorker(ctx, record)
	case record.State == datadir.StateMember:
		return freshNone, c.loadIdentity(record)
	case c.cfg.Bootstrap:
		return freshCluster, c.makeIdentity()
	case c.cfg.JoinToken != "":
		return freshReplica, c.joiner.join(ctx)
	}
	return 0, compute.Errorf(compute.CodeInvalid,
		"This node is in no cluster: start it with bootstrap to make one, or with a join token and the address of a server.")
}

// loadIdentity reads a member's identity from disk. It makes another certificate
// when the present one is unusable, because the node was down for long or stopped
// during a renewal.
func (c identity) loadIdentity(record datadir.Record) error {
	ca, err := pki.LoadCA(c.dir.Path(datadir.PKIDir))
	if err != nil {
		return err
	}
	c.ca, c.id, c.clusterID = ca, record.NodeID, record.ClusterID
	if err := c.checkAuthority(); err != nil {
		return err
	}
	if ca.Key == nil {
		return errOtherRole(compute.RoleWorker)
	}
	pair, err := pki.LoadPair(c.dir.Path(datadir.PKIDir), ca)
	if err == nil {
		_, err = ca.Verify(pair.Leaf, c.cfg.Now())
	}
	if err != nil {
		c.logger.Warn("certificate unusable, making another", "err", err)
		return c.issueOwn()
	}
	c.pair.Store(pair)
	return nil
}

// checkAuthority refuses to start with the authority of another cluster. The node
// would make a certificate that no other node accepts.
func (c identity) checkAuthority() error {
	if of := c.ca.Cluster(); !of.IsZero() && of != c.clusterID {
		return compute.Errorf(compute.CodeConflict, "The certificate authority in %s is of cluster %s, this node is of "+
			"cluster %s: copy ca.crt and, on a server, ca.key from a server of the latter.",
			c.dir.Path(datadir.PKIDir), of, c.clusterID)
	}
	return nil
}

// makeIdentity makes a cluster of this one node.
func (c identity) makeIdentity() error {
	var err error
	if c.id = c.cfg.NodeID; c.id.IsZero() {
		if c.id, err = newNodeID(c.cfg.Rand); err != nil {
			return err
		}
	}
	if c.clusterID, err = newUUID(c.cfg.Rand); err != nil {
		return err
	}
	if c.ca, err = pki.NewCA(c.cfg.Rand, c.clusterID, c.cfg.Now()); err != nil {
		return err
	}
	if err := pki.SaveCA(c.dir.Path(datadir.PKIDir), c.ca); err != nil {
		return err
	}
	if err := c.issueOwn(); err != nil {
		return err
	}
	return gossip.MakeKeyring(c.dir, c.cfg.Rand)
}

// settle records that the node is a member. From then on it never makes or joins a
// cluster, whatever its flags are.
func (c identity) settle() error {
	if c.dir.Record().State == datadir.StateMember {
		return nil
	}
	fault.Point("cluster.join.settle")
	return c.dir.Update(func(r *datadir.Record) {
		r.NodeID, r.ClusterID, r.State = c.id, c.clusterID, datadir.StateMember
	})
}

// issueOwn makes this server's certificate with the authority's key, which
// every server holds.
func (c identity) issueOwn() error {
	key, err := pki.NewKey(c.cfg.Rand)
	if err != nil {
		return err
	}
	identity := pki.Identity{Cluster: c.clusterID, Role: compute.RoleServer, Node: c.id}
	cert, err := c.ca.Issue(c.cfg.Rand, identity, key.Public(), c.cfg.Now())
	if err != nil {
		return err
	}
	return c.usePair(pki.Pair(cert, key, c.ca))
}

// usePair saves a certificate and presents it from the next handshake on.
func (c identity) usePair(pair *tls.Certificate) error {
	if err := pki.SavePair(c.dir.Path(datadir.PKIDir), pair); err != nil {
		return err
	}
	c.pair.Store(pair)
	return nil
}

// renew replaces the certificate after half of its lifetime.
func (c identity) renew(ctx context.Context) error {
	for {
		c.renewIfDue(ctx)
		if !loop.Sleep(ctx, renewCheck) {
			return nil // The end of ctx.
		}
	}
}

func (c identity) renewIfDue(ctx context.Context) {
	leaf := c.pair.Load().Leaf
	if c.cfg.Now().Before(leaf.NotAfter.Add(-pki.LeafLifetime / 2)) {
		return
	}
	issue := c.issueOwn
	if c.isWorker() {
		issue = func() error { return c.askForOwn(ctx) }
	}
	if err := issue(); err != nil {
		c.logger.Error("certificate not renewed", "err", err)
		return
	}
	c.logger.Info("certificate renewed")
}

// newRequest makes a key and the request for a certificate of it.
func (c identity) newRequest() (ed25519.PrivateKey, []byte, error) {
	key, err := pki.NewKey(c.cfg.Rand)
	if err != nil {
		return nil, nil, err
	}
	csr, err := pki.NewRequest(c.cfg.Rand, key)
	if err != nil {
		return nil, nil, fmt.Errorf("ask for certificate: %w", err)
	}
	return key, csr, nil
}

// newNodeID returns a random (version 4) node id.
func newNodeID(random io.Reader) (compute.NodeID, error) {
	u, err := newUUID(random)
	return compute.NodeID{UUID: u}, err
}

func newUUID(random io.Reader) (compute.UUID, error) {
	var u compute.UUID
	if _, err := io.ReadFull(random, u[:]); err != nil {
		return u, fmt.Errorf("make id: %w", err)
	}
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return u, nil
}
