package edge

import (
	"context"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"time"

	"github.com/valyala/fasthttp"

	"berth/api/edge/connection"
	"berth/api/edge/openai"
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
	return c.pass(upgrade, release, func(ctx context.Context, body *connection.RequestBody) (*http.Response, error) {
		header, drop := http.Header{}, append(hopByHop(), ours()...)
		for name, value := range c.ctx.Request.Header.All() {
			if key := textproto.CanonicalMIMEHeaderKey(string(name)); !slices.Contains(drop, key) {
				header.Add(key, string(value))
			}
		}
		if c.r.orgSlug != "" { // Models have it; the server keeps it from programs.
			header.Set("X-Org-Slug", c.r.orgSlug)
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
			openai.EndWithEvent(answer) // The server may end in the middle of it.
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
	open := connection.NewAwaited(conn)
	defer open.Close()
	defer context.AfterFunc(life.soft, func() { open.Close() })()
	server := s.newServer(*life)
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
	open.Wait() // An upgraded connection outlives ServeConn.
	return err
}
