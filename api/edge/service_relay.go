package edge

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"berth/compute"
)

// relayService has a server answer: a worker knows neither services nor credentials.
// The server gets the request as it came, with the address of the client.
func (c *serviceCall) relayService() error {
	in := &Relayed{IP: c.r.IP, Bearer: c.r.bearer, Path: StreamRoot + "/stream/"} // Counted as a stream.
	release, err := c.takeRelay(in)
	if err != nil {
		return err
	}
	upgrade := c.upgrade()
	return c.pass(upgrade, release, func(ctx context.Context, body *requestBody) (*http.Response, error) {
		header, drop := http.Header{}, append(hopByHop(), ours()...)
		for name, value := range c.ctx.Request.Header.All() {
			if key := textproto.CanonicalMIMEHeaderKey(string(name)); !slices.Contains(drop, key) {
				header.Add(key, string(value))
			}
		}
		req := c.request(ctx, body, withUpgrade(header, upgrade))
		req.URL = &url.URL{
			Scheme: "http", Host: "server", Opaque: string(c.ctx.URI().PathOriginal()), RawQuery: c.query,
		}
		answer, err := c.cfg.ServiceRelay.RoundTrip(req)
		if err != nil {
			return nil, compute.Errorf(compute.CodeUnavailable, "No server of the cluster answered.").
				Named("no_server").Retry(time.Second).Because(err)
		}
		if isModel(c.ctx.URI().PathOriginal()) {
			endWithEvent(answer) // The server may end in the middle of it.
		}
		return answer, nil
	})
}

// believe takes from a worker's headers who the client is and how it came.
func (s *Server) believe(ctx *fasthttp.RequestCtx, r *Request) {
	h := &ctx.Request.Header
	r.IP = string(h.Peek("X-Forwarded-For"))
	r.Base = s.baseURL(string(ctx.Host()), string(h.Peek("X-Forwarded-Proto")) == "https")
}

// ServeServices answers requests to services on a connection from a worker, until it
// ends or the server stops.
func (s *Server) ServeServices(conn net.Conn) error {
	life := s.life.Load()
	if life == nil || life.soft.Err() != nil {
		return compute.Errorf(compute.CodeUnavailable, "This node is not serving.").Retry(time.Second)
	}
	open := &awaitedConn{Conn: conn, closed: make(chan struct{})}
	defer open.Close()
	defer context.AfterFunc(life.soft, func() { open.Close() })()
	server := s.newServer(*life)
	server.MaxConnsPerIP = 0 // All of a worker's clients have its address.
	incoming := s.incomingHandler(*life)
	server.Handler = func(ctx *fasthttp.RequestCtx) {
		if isModel(ctx.URI().PathOriginal()) {
			s.serveModelsSafely(*life, ctx, true)
			return
		}
		if !isService(ctx.URI().PathOriginal()) {
			incoming(ctx)
			return
		}
		s.serveServiceSafely(*life, ctx, true)
	}
	err := server.ServeConn(open)
	<-open.closed // An upgraded connection outlives ServeConn.
	return err
}

// awaitedConn is a connection whose end can be waited for.
type awaitedConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Read reads from the connection. The watch of a client distinguishes the end of its
// own deadline from a hang-up. Streams between nodes report the deadline by an error
// of their own.
func (c *awaitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

func (c *awaitedConn) Close() (err error) {
	c.once.Do(func() {
		err = c.Conn.Close()
		close(c.closed)
	})
	return err
}
