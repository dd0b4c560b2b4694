package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"

	"berth/api/edge"
	"berth/api/wire"
	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm/command"
	"berth/node/config"
	"berth/node/gateway"
)

// methodS3 is the stream by which a worker has a server answer S3 requests. It carries
// the connection of a client.
const methodS3 = "s3.relay"

// s3KeyPurpose names the key that credentials of S3 are made with.
const s3KeyPurpose = "s3 credentials v1"

// openListener opens the socket of the S3 endpoint, if there is one.
func (p *s3Part) openListener(ctx context.Context) error {
	addr, auto := p.node.cfg.S3Addr(), p.node.cfg.S3.Addr == config.S3Auto
	p.url = p.node.cfg.S3.PublicURL
	if addr == "" {
		return nil
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", addr)
	if auto && errors.Is(err, syscall.EADDRINUSE) {
		p.node.logger.Warn("s3 port not opened: another program has it",
			"part", "s3", "address", addr, "hint", "set s3.addr; clients of S3 can use "+edge.S3Root+" at the API's address")
		return nil
	}
	if err != nil {
		return fmt.Errorf("open s3 listener: %w", err)
	}
	p.node.onClose(ignoreClosed(l.Close))
	scheme := "http"
	tlsConfig, err := p.node.apiTLS()
	if err != nil {
		return err
	}
	p.listener = l
	if tlsConfig != nil {
		scheme = "https"
		p.listener = tls.NewListener(l, tlsConfig)
	}
	if p.url == "" && !auto {
		p.url = scheme + "://" + reachable(l.Addr(), p.node.cfg.Advertise)
	}
	return nil
}

// open makes the gateway of a server, which serves workers although it has no
// endpoint itself.
func (p *s3Part) open() (err error) {
	p.keys = gateway.Keys{Secret: p.node.master.Derive(s3KeyPurpose, derivedKeyBytes), Now: p.node.cluster.Clock().Now}
	p.gateway, err = gateway.New(gateway.Config{
		Keys: p.keys, Objects: p.node.objects, View: p.node.machine.View, Read: p.node.reader().Read,
		Propose: p.node.proposer().Propose, Wait: p.node.machine.Wait, NewID: newID, Logger: p.node.logger,
	})
	if err != nil {
		return err
	}
	p.node.cluster.HandleStream(methodS3, cluster.Workers,
		func(ctx context.Context, _ rpc.Peer, _ []byte, stream *rpc.Stream) error {
			if err := stream.Accept(nil); err != nil {
				return err
			}
			return p.gateway.ServeConn(ctx, stream)
		})
	return nil
}

// transport returns the transport to the gateway of this node, or on a worker of a
// server, for requests that came to the API.
func (p *s3Part) transport() http.RoundTripper {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		if !p.node.isWorker() {
			return p.gateway.Dial(ctx)
		}
		return dialStream(ctx, func(life context.Context) (io.ReadWriteCloser, error) {
			return p.node.cluster.OpenSome(life, methodS3, nil, func(io.Reader) error { return nil })
		})
	}
	transport := &http.Transport{
		DialContext: dial, DisableCompression: true, MaxIdleConnsPerHost: idleRelays, MaxConnsPerHost: maxS3Relays,
		IdleConnTimeout: idleRelay,
	}
	p.node.onClose(func() error {
		transport.CloseIdleConnections()
		return nil
	})
	return transport
}

// serve serves S3 until ctx ends.
func (p *s3Part) serve(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	if p.node.isWorker() {
		return p.relay(ctx)
	}
	failed := make(chan error, 1)
	parts.Go(func() { failed <- p.gateway.Run(ctx) })
	for _, l := range p.listeners() {
		parts.Go(func() {
			if err := p.gateway.Serve(ctx, l); err != nil {
				p.node.logger.Error("s3 endpoint ended", "part", "s3", "err", err)
			}
		})
	}
	return <-failed
}

// relay hands the connections of clients on to servers.
func (p *s3Part) relay(ctx context.Context) error {
	var endpoints sync.WaitGroup
	defer endpoints.Wait()
	places, customers := make(chan struct{}, maxS3Relays), gateway.NewCustomers(maxS3Relays)
	for _, l := range p.listeners() {
		endpoints.Go(func() {
			if err := p.relayFrom(ctx, l, places, customers); err != nil {
				p.node.logger.Error("s3 endpoint ended", "part", "s3", "err", err)
			}
		})
	}
	return nil
}

// relayFrom hands the connections of one endpoint on.
func (p *s3Part) relayFrom(
	ctx context.Context, l net.Listener, places chan struct{}, customers *gateway.Customers,
) error {
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
		release, ok := customers.Take(conn)
		if !ok {
			conn.Close()
			continue
		}
		select {
		case places <- struct{}{}:
		default:
			release()
			conn.Close()
			continue
		}
		conns.Go(func() {
			defer func() { <-places }()
			defer release()
			defer conn.Close()
			server, err := p.node.cluster.OpenSome(ctx, methodS3, nil, func(io.Reader) error { return nil })
			if err != nil {
				p.node.logger.Debug("s3 connection not handed on", "err", err)
				return
			}
			gateway.Pipe(ctx, conn, server)
		})
	}
}

// maxS3Relays is how many connections a worker hands on at once.
const maxS3Relays = 512

// credentials makes credentials of S3 for an actor.
func (p *s3Part) credentials(
	actor command.Actor, session compute.UUID, key compute.Hash, base string, handedOn bool,
) (wire.StorageCredentials, error) {
	if p.node.machine.View().AllowsBoundCredentials() != nil {
		key = compute.Hash{}
	}
	c := p.keys.Mint(actor, session, key)
	return wire.StorageCredentials{
		AccessKey: c.Access, SecretKey: c.Secret, SessionToken: c.Token, Endpoint: p.endpoint(base, handedOn),
		BucketName: gateway.BucketOf(actor.Org), Region: gateway.Region, ExpiresAt: compute.InstantOf(c.ExpiresAt),
	}, nil
}

// endpoint returns where a client that has reached the API at base reaches S3. A port of its
// own that no setting names is known to be there only if the client asks this node itself,
// at its own address: not behind a proxy.
func (p *s3Part) endpoint(base string, handedOn bool) string {
	if p.url != "" {
		return p.url
	}
	at, err := url.Parse(base)
	if err != nil || handedOn || p.listener == nil || p.node.cfg.API.PublicURL != "" {
		return base + edge.S3Root
	}
	port := at.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[at.Scheme]
	}
	if port != portOf(p.node.listener) {
		return base + edge.S3Root
	}
	return at.Scheme + "://" + net.JoinHostPort(at.Hostname(), portOf(p.listener))
}

// portOf returns the port of a listener.
func portOf(l net.Listener) string {
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return ""
	}
	return port
}

// s3Part serves S3.
type s3Part struct {
	node     *Node
	listener net.Listener // Nil for none.
	url      string       // Where clients reach it, as a setting says; "" if none does.
	mounts   net.Listener // For the mounts of executions on this node; nil for none.
	socket   string       // Path of the socket of mounts.
	keys     gateway.Keys
	gateway  *gateway.Gateway // On a server only.
}

// S3URL returns the URL of this node's S3 endpoint, "" for none.
func (n *Node) S3URL() string { return n.s3.url }
