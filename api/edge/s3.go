package edge

import (
	"context"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"time"

	"github.com/valyala/fasthttp"

	"berth/api/edge/connection"
	"berth/compute"
)

// S3Root is the path below which clients of S3 reach buckets, as at the S3 endpoint.
const S3Root = "/s3"

// inert keeps a stored page from the origin of the API.
const inert = "sandbox; default-src 'none'"

// serveS3 has the S3 gateway answer a request as it came, because what came is signed.
func (s *Server) serveS3(life lifetime, ctx *fasthttp.RequestCtx) {
	defer func() {
		if cause := recover(); cause != nil {
			s.refuse(ctx, s.panicked(ctx, cause))
		}
	}()
	r, err := s.newRequest(ctx, nil)
	r.life = life
	r.route = &Route{Method: string(ctx.Method()), Path: S3Root + "/{bucket}"}
	c := &serviceCall{Server: s, ctx: ctx, r: r, query: string(ctx.URI().QueryString()), bare: true}
	if err != nil {
		ctx.SetConnectionClose()
	} else {
		err = c.passS3()
	}
	if err != nil {
		ctx.Response.Reset()
		s.fail(ctx, r, err)
		if !ctx.IsGet() && !ctx.IsHead() {
			ctx.SetConnectionClose() // Nothing is read of a body that nobody wants.
		}
		return
	}
	h := &ctx.Response.Header
	for _, name := range append(ofOrigin(), "Set-Cookie") {
		h.Del(name)
	}
	h.Set("Content-Security-Policy", inert)
	h.Set("X-Content-Type-Options", "nosniff")
}

// passS3 passes the request on.
func (c *serviceCall) passS3() error {
	if c.cfg.S3 == nil {
		return NotFound()
	}
	owner := c.r.customer() // The owner of the bucket is known only once the signature is checked.
	if !c.served.Take(owner, 1) {
		return compute.Errorf(compute.CodeUnavailable, "This node passes on too many requests.").
			Named("too_many_requests").Retry(time.Second)
	}
	return c.pass("", func() { c.served.Give(owner, 1) }, c.askS3)
}

// askS3 has the gateway answer the request.
func (c *serviceCall) askS3(ctx context.Context, body *connection.RequestBody) (*http.Response, error) {
	header, drop := http.Header{}, append(hopByHop(), "Content-Length", "Host", "Expect")
	for name, value := range c.ctx.Request.Header.All() {
		if key := textproto.CanonicalMIMEHeaderKey(string(name)); !slices.Contains(drop, key) {
			header.Add(key, string(value))
		}
	}
	req := c.request(ctx, body, header)
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		setOrDelete(req.Header, name, c.ctx.Request.Header.Peek(name)) // They may be signed.
	}
	req.URL = &url.URL{
		Scheme: "http", Host: "s3", Opaque: string(c.ctx.URI().PathOriginal()), RawQuery: c.query,
	}
	withUpgrade(req.Header, "")
	answer, err := c.cfg.S3.RoundTrip(req)
	if err != nil {
		return nil, compute.Errorf(compute.CodeUnavailable, "The S3 gateway does not answer.").Because(err).
			Named("no_gateway").Retry(time.Second)
	}
	return answer, nil
}

// setOrDelete sets a header to what came, which may be nothing.
func setOrDelete(h http.Header, name string, came []byte) {
	if len(came) == 0 {
		h.Del(name)
		return
	}
	h.Set(name, string(came))
}
