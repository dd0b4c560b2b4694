package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"

	"berth/cluster/datadir"
	"berth/cluster/pki"
	"berth/cluster/rpc"
	"berth/compute"
)

// isWorker reports whether this node holds no replica and asks servers for the
// state that it needs.
func (c *Cluster) isWorker() bool { return c.cfg.Role == compute.RoleWorker }

// errOtherRole refuses a data directory of a node of another role.
func errOtherRole(was compute.Role) error {
	return compute.Errorf(compute.CodeConflict,
		"The data directory belongs to a node of role %s: "+
			"set role to that, or have the node join again with another data_dir.", was)
}

// loadWorker reads a worker's identity from disk. When the certificate expired
// because the worker was down for long, the worker needs a new token: only servers
// make certificates.
func (c identity) loadWorker(ctx context.Context, record datadir.Record) error {
	ca, err := pki.LoadCA(c.dir.Path(datadir.PKIDir))
	if err != nil {
		return err
	}
	if ca.Key != nil {
		return errOtherRole(compute.RoleServer)
	}
	c.ca, c.id, c.clusterID = ca, record.NodeID, record.ClusterID
	if err := c.checkAuthority(); err != nil {
		return err
	}
	pair, err := pki.LoadPair(c.dir.Path(datadir.PKIDir), ca)
	if err == nil {
		_, err = ca.Verify(pair.Leaf, c.cfg.Now())
	}
	switch {
	case err == nil:
		c.pair.Store(pair)
		return nil
	case c.cfg.JoinToken == "":
		return compute.Errorf(compute.CodeConflict, "This worker's certificate cannot be used any more: "+
			"make a token with berth admin token create --role worker and start with join.token_file. (%w)", err)
	}
	c.logger.Warn("certificate unusable, joining again", "err", err)
	return c.joiner.join(ctx)
}

// askForOwn asks a server for another certificate for this worker.
func (c identity) askForOwn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	key, csr, err := c.newRequest()
	if err != nil {
		return err
	}
	der, err := c.Ask(ctx, methodRenew, csr)
	if err != nil {
		return fmt.Errorf("ask for certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("ask for certificate: %w", err)
	}
	got, err := c.ca.Verify(cert, c.cfg.Now())
	if err != nil {
		return fmt.Errorf("ask for certificate: %w", err)
	}
	want := pki.Identity{Cluster: c.clusterID, Role: compute.RoleWorker, Node: c.id}
	if got != want || !key.Public().(ed25519.PublicKey).Equal(cert.PublicKey) {
		return fmt.Errorf("ask for certificate: it is for %s, not for %s", got.URI(), want.URI())
	}
	return c.usePair(pki.Pair(cert, key, c.ca))
}

// handleRenew issues a certificate for the identity of the caller, whatever its
// request names.
func (c identity) handleRenew(_ context.Context, peer rpc.Peer, csr []byte) ([]byte, error) {
	identity := pki.Identity{Cluster: c.clusterID, Role: peer.Role, Node: peer.ID}
	cert, err := c.ca.IssueForRequest(c.cfg.Rand, identity, csr, c.cfg.Now())
	if err != nil {
		return nil, err
	}
	c.logger.Info("worker certificate renewed", "node", peer.ID)
	return cert.Raw, nil
}

// workerCalls is how a worker calls servers, and how these tell it of each other.
type workerCalls struct{ *Cluster }

// handleServers answers a worker with the servers and their addresses.
func (c workerCalls) handleServers(context.Context, rpc.Peer, []byte) ([]byte, error) {
	return c.codec.Marshal(c.joiner.joinPeers()), nil
}

// Ask calls a method of any server, first of the one that answered last. It tries
// the next one when a server does not answer, is unavailable, or is lost to gossip
// meanwhile. So more than one server may execute the method.
func (c *Cluster) Ask(ctx context.Context, method string, request []byte) (answer []byte, err error) {
	err = c.EachServer(ctx, func(ctx context.Context, server compute.NodeID) error {
		answer, err = c.Call(ctx, server, method, request)
		return err
	})
	return answer, err
}

// EachServer calls do for one server after another, the one that answered last
// first, until do succeeds or fails with an error that another server would repeat.
// The context of a call ends when gossip loses its server. Without success it
// returns the last refusal, or CodeUnavailable.
func (c *Cluster) EachServer(ctx context.Context, do func(ctx context.Context, server compute.NodeID) error) error {
	return c.workerCalls.eachServer(ctx, func(server compute.NodeID) error {
		try, end := c.upstream.while(ctx, server)
		defer end()
		return do(try, server)
	})
}

func (c workerCalls) eachServer(ctx context.Context, do func(server compute.NodeID) error) error {
	failed := error(compute.Errorf(compute.CodeUnavailable, "No server of the cluster is known."))
	for _, server := range c.upstream.order() {
		err := do(server)
		if err == nil || !elsewhere(err) {
			c.upstream.note(server, true)
			return err
		}
		failed = err
		if !errors.Is(ctx.Err(), context.Canceled) {
			c.upstream.note(server, false)
		}
		if ctx.Err() != nil {
			break
		}
		c.logger.Debug("server not reachable", "node", server, "err", err)
	}
	if _, coded := errors.AsType[*compute.Error](failed); coded {
		return failed
	}
	return compute.Errorf(compute.CodeUnavailable, "No server of the cluster answers: %w", failed).
		Named("no_server").Retry(leaderWait)
}

// elsewhere reports whether another server may succeed where one failed.
func elsewhere(err error) bool {
	e, coded := errors.AsType[*compute.Error](err)
	return !coded || e.Code == compute.CodeUnavailable || e.Detail == rpc.NoMethod
}

// spreadOrder orders servers differently for each worker, so that the workers do
// not all ask the same one.
func (c workerCalls) spreadOrder(a, b compute.NodeID) int {
	mark := func(id compute.NodeID) []byte {
		sum := sha256.Sum256(append(c.id.UUID[:], id.UUID[:]...))
		return sum[:]
	}
	return cmp.Or(bytes.Compare(mark(a), mark(b)), bytes.Compare(a.UUID[:], b.UUID[:]))
}

// OpenSome calls a stream method of any server, as Ask does. take reads from the
// stream whether the server has accepted the call, and must return soon. The stream
// ends with ctx, and when gossip loses its server.
func (c *Cluster) OpenSome(
	ctx context.Context, method string, request []byte, take func(io.Reader) error,
) (io.ReadWriteCloser, error) {
	var opened io.ReadWriteCloser
	err := c.workerCalls.eachServer(ctx, func(server compute.NodeID) error {
		try, end := c.upstream.while(ctx, server)
		_, stream, err := c.Open(try, server, method, request)
		if err != nil {
			end()
			return err
		}
		if err := take(stream); err != nil {
			stream.Close()
			end()
			return err
		}
		opened = &someStream{stream, end}
		return nil
	})
	return opened, err
}

// someStream ends the watch on its server when it is closed.
type someStream struct {
	io.ReadWriteCloser
	end func()
}

func (s *someStream) Close() error {
	s.end()
	return s.ReadWriteCloser.Close()
}
