package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"berth/api/wire"
	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
	"berth/node/gateway"
)

// methodS3 is the stream by which a worker has a server answer S3 requests. It carries
// the connection of a client.
const methodS3 = "s3.relay"

// s3KeyPurpose names the key that credentials of S3 are made with.
const s3KeyPurpose = "s3 credentials v1"

// openS3Listener opens the socket of the S3 endpoint, if there is one.
func (n *Node) openS3Listener(ctx context.Context) error {
	if n.cfg.S3.Addr == "" {
		return nil
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", n.cfg.S3.Addr)
	if err != nil {
		return fmt.Errorf("open s3 listener: %w", err)
	}
	n.onClose(ignoreClosed(l.Close))
	scheme := "http"
	tlsConfig, err := n.apiTLS()
	if err != nil {
		return err
	}
	n.s3.listener = l
	if tlsConfig != nil {
		scheme = "https"
		n.s3.listener = tls.NewListener(l, tlsConfig)
	}
	if n.s3.url = n.cfg.S3.PublicURL; n.s3.url == "" {
		n.s3.url = scheme + "://" + reachable(l.Addr(), n.cfg.Advertise)
	}
	return nil
}

// openS3 makes the gateway of a server, which serves workers although it has no
// endpoint itself.
func (n *Node) openS3() (err error) {
	n.s3.keys = gateway.Keys{Secret: n.master.Derive(s3KeyPurpose, derivedKeyBytes), Now: n.cluster.Clock().Now}
	n.s3.gateway, err = gateway.New(gateway.Config{
		Keys: n.s3.keys, Objects: n.objects, View: n.machine.View, Read: n.reader().Read,
		Propose: n.proposer().Propose, Wait: n.machine.Wait, NewID: newID, Logger: n.logger,
	})
	if err != nil {
		return err
	}
	n.cluster.HandleStream(methodS3, cluster.Workers,
		func(ctx context.Context, _ rpc.Peer, _ []byte, stream *rpc.Stream) error {
			if err := stream.Accept(nil); err != nil {
				return err
			}
			return n.s3.gateway.ServeConn(ctx, stream)
		})
	return nil
}

// s3Transport returns what has the gateway, this node's or a server's, answer requests
// that came to the API.
func (n *Node) s3Transport() http.RoundTripper {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		if !n.isWorker() {
			return n.s3.gateway.Dial(ctx)
		}
		return dialStream(ctx, func(life context.Context) (io.ReadWriteCloser, error) {
			return n.cluster.OpenSome(life, methodS3, nil, func(io.Reader) error { return nil })
		})
	}
	transport := &http.Transport{
		DialContext: dial, DisableCompression: true, MaxIdleConnsPerHost: idleRelays, MaxConnsPerHost: maxS3Relays,
		IdleConnTimeout: idleRelay,
	}
	n.onClose(func() error {
		transport.CloseIdleConnections()
		return nil
	})
	return transport
}

// serveS3 serves S3 until ctx ends.
func (n *Node) serveS3(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	if n.isWorker() {
		return n.relayS3(ctx)
	}
	failed := make(chan error, 1)
	parts.Go(func() { failed <- n.s3.gateway.Run(ctx) })
	for _, l := range n.s3.listeners() {
		parts.Go(func() {
			if err := n.s3.gateway.Serve(ctx, l); err != nil {
				n.logger.Error("s3 endpoint ended", "part", "s3", "err", err)
			}
		})
	}
	return <-failed
}

// relayS3 hands the connections of clients on to servers.
func (n *Node) relayS3(ctx context.Context) error {
	var endpoints sync.WaitGroup
	defer endpoints.Wait()
	places := make(chan struct{}, maxS3Relays)
	for _, l := range n.s3.listeners() {
		endpoints.Go(func() {
			if err := n.relayS3From(ctx, l, places); err != nil {
				n.logger.Error("s3 endpoint ended", "part", "s3", "err", err)
			}
		})
	}
	return nil
}

// relayS3From hands the connections of one endpoint on.
func (n *Node) relayS3From(ctx context.Context, l net.Listener, places chan struct{}) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := gateway.Accept(ctx, l)
		if err != nil {
			return err
		}
		if conn == nil {
			return nil
		}
		select {
		case places <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		conns.Go(func() {
			defer func() { <-places }()
			defer conn.Close()
			server, err := n.cluster.OpenSome(ctx, methodS3, nil, func(io.Reader) error { return nil })
			if err != nil {
				n.logger.Debug("s3 connection not handed on", "err", err)
				return
			}
			gateway.Pipe(ctx, conn, server)
		})
	}
}

// maxS3Relays is how many connections a worker hands on at once.
const maxS3Relays = 512

// storageCredentials makes credentials of S3 for an actor.
func (n *Node) storageCredentials(actor fsm.Actor, session compute.UUID) (wire.StorageCredentials, error) {
	c := n.s3.keys.Mint(actor, session)
	return wire.StorageCredentials{
		AccessKey: c.Access, SecretKey: c.Secret, SessionToken: c.Token, Endpoint: n.s3.url,
		BucketName: gateway.BucketOf(actor.Org), Region: gateway.Region, ExpiresAt: compute.InstantOf(c.ExpiresAt),
	}, nil
}

// s3Part is what serves S3.
type s3Part struct {
	listener net.Listener // Nil for none.
	url      string
	mounts   net.Listener // For the mounts of executions on this node; nil for none.
	socket   string       // Of mounts.
	keys     gateway.Keys
	gateway  *gateway.Gateway // Of a server.
}

// S3URL returns the URL of this node's S3 endpoint, "" for none.
func (n *Node) S3URL() string { return n.s3.url }
