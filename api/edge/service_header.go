package edge

import (
	"context"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"berth/api/auth"
	"berth/api/edge/connection"
)

// sandboxed keeps a page of a service from the origin of the API: its scripts are of
// an origin of their own, and read neither storage nor answers of this one.
const sandboxed = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"

// hopByHop returns the headers of one connection, which are not passed on.
func hopByHop() []string {
	return []string{
		"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade",
	}
}

// ours returns the headers that are between the client and Berth.
func ours() []string {
	return []string{
		"X-Org-Slug", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Prefix", "X-Real-Ip",
		"Forwarded", "Expect", "Content-Length", "Host",
	}
}

// ofOrigin returns the headers of answers by which a service would act on the whole
// origin: on the API, and on other services.
func ofOrigin() []string {
	return []string{
		"Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "Service-Worker-Allowed", "Nel", "Report-To",
		"Reporting-Endpoints", "Origin-Agent-Cluster", "Accept-Ch", "Critical-Ch",
	}
}

// upgrade returns the protocol that the client asks to switch to, "" for none.
func (c *serviceCall) upgrade() string {
	h := &c.ctx.Request.Header
	if !hasToken(string(h.Peek("Connection")), "upgrade") {
		return ""
	}
	return string(h.Peek("Upgrade"))
}

// hasToken reports whether a list of a header has a token.
func hasToken(list, token string) bool {
	for part := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(part), token) {
			return true
		}
	}
	return false
}

// request returns the request for the replica: without the prefix of the path, and
// without what is between the client and Berth.
func (c *serviceCall) request(ctx context.Context, body *connection.RequestBody, header http.Header) *http.Request {
	path := c.path
	if path == "" {
		path = "/"
	}
	host := string(c.ctx.Host())
	req := (&http.Request{
		Method: string(c.ctx.Method()), Host: host, Header: header,
		URL:   serviceURL(path, c.query),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if !body.None() {
		req.Body, req.ContentLength = body, int64(c.ctx.Request.Header.ContentLength())
		if req.ContentLength < 0 {
			req.ContentLength = -1
		}
	}
	proto := "http"
	if strings.HasPrefix(c.r.Base, "https:") {
		proto = "https"
	}
	for name, value := range map[string]string{
		"X-Forwarded-For": c.r.IP, "X-Forwarded-Host": host, "X-Forwarded-Proto": proto,
		"X-Request-Id": c.r.id,
	} {
		req.Header.Set(name, value)
	}
	return req
}

// serviceURL returns the URL of a request whose first line has a path as the client sent it.
func serviceURL(path, query string) *url.URL {
	if !strings.HasPrefix(path, "//") {
		return &url.URL{Scheme: "http", Opaque: path, RawQuery: query}
	}
	// As Opaque it would follow the scheme, so that its first part would be taken for a host.
	// RawPath is sent as it is, unless it has bytes that a path may not have.
	plain, err := url.PathUnescape(path)
	if err != nil {
		plain = path
	}
	return &url.URL{Scheme: "http", Path: plain, RawPath: path, RawQuery: query}
}

// requestHeader returns the headers for the replica.
func (c *serviceCall) requestHeader(upgrade string) http.Header {
	out := http.Header{}
	drop := append(hopByHop(), ours()...)
	for part := range strings.SplitSeq(string(c.ctx.Request.Header.Peek("Connection")), ",") {
		drop = append(drop, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(part)))
	}
	for name, value := range c.ctx.Request.Header.All() {
		key, text := textproto.CanonicalMIMEHeaderKey(string(name)), string(value)
		switch {
		case slices.Contains(drop, key):
			continue
		case key == "Authorization" && c.isOurs(text):
			continue
		case key == "Cookie":
			if text = withoutOwnCookie(text); text == "" {
				continue
			}
		}
		out.Add(key, text)
	}
	out.Set("X-Forwarded-Prefix", ServiceRoot+c.id.String())
	return withUpgrade(out, upgrade)
}

// withUpgrade completes the headers of a request: with the protocol to switch to, ""
// for none.
func withUpgrade(out http.Header, upgrade string) http.Header {
	if out.Get("User-Agent") == "" {
		out["User-Agent"] = []string{""} // Else the transport names itself.
	}
	if upgrade != "" {
		out.Set("Connection", "Upgrade")
		out.Set("Upgrade", upgrade)
	}
	return out
}

// isOurs reports whether an Authorization header has a credential of Berth. Credentials
// for the program itself are passed on.
func (c *serviceCall) isOurs(header string) bool {
	text := bearerOf(header)
	if text == "" {
		return false
	}
	if auth.LooksLikeAPIKey(text) {
		return true
	}
	_, ok := c.bearer(text)
	return ok
}

// withoutOwnCookie returns a Cookie header without Berth's.
func withoutOwnCookie(header string) string {
	var kept []string
	for part := range strings.SplitSeq(header, ";") {
		part = strings.TrimSpace(part)
		if name, _, _ := strings.Cut(part, "="); part != "" && !strings.EqualFold(strings.TrimSpace(name), cookieName) {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "; ")
}

// writeAnswer sets the status and the headers of a replica's answer.
func (c *serviceCall) writeAnswer(answer *http.Response) {
	h := &c.ctx.Response.Header
	h.SetNoDefaultContentType(true)
	drop := append(hopByHop(), "Content-Length", "Date")
	if !c.bare {
		drop = append(drop, ofOrigin()...)
	}
	for part := range strings.SplitSeq(answer.Header.Get("Connection"), ",") {
		drop = append(drop, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(part)))
	}
	for name, values := range answer.Header {
		if slices.Contains(drop, textproto.CanonicalMIMEHeaderKey(name)) {
			continue
		}
		for _, value := range values {
			switch {
			case c.bare:
			case name == "Set-Cookie":
				if value = c.ownPath(value); value == "" {
					continue
				}
			case name == "Location", name == "Content-Location":
				value = c.below(value)
			}
			h.Add(name, value)
		}
	}
	h.Set("X-Request-Id", c.r.id)
	c.ctx.SetStatusCode(answer.StatusCode)
	if !c.bare {
		c.protect()
		c.setCookie()
	}
}

// protect adds the headers that protect the API's origin from what a service sends.
// The operator may give services an origin of their own, which needs none.
func (c *serviceCall) protect() {
	h := &c.ctx.Response.Header
	if c.cfg.ServicesURL == "" || !strings.EqualFold(hostOf(c.cfg.ServicesURL), string(c.ctx.Host())) {
		h.Add("Content-Security-Policy", sandboxed)
		h.Set("X-Content-Type-Options", "nosniff")
	}
	if len(h.Peek("Referrer-Policy")) == 0 {
		h.Set("Referrer-Policy", "same-origin")
	}
}

// hostOf returns the host and port of a URL.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Host
}

// setCookie sets the cookie that a token was exchanged for.
func (c *serviceCall) setCookie() {
	if c.cookie == "" {
		return
	}
	var cookie fasthttp.Cookie
	cookie.SetKey(cookieName)
	cookie.SetValue(c.cookie)
	cookie.SetPath(ServiceRoot + c.id.String() + "/")
	cookie.SetMaxAge(int(cookieTTL.Seconds()))
	cookie.SetHTTPOnly(true)
	cookie.SetSameSite(fasthttp.CookieSameSiteLaxMode)
	cookie.SetSecure(strings.HasPrefix(c.r.Base, "https:"))
	c.ctx.Response.Header.SetCookie(&cookie)
}

// below returns a location of the service as its clients reach it.
func (c *serviceCall) below(location string) string {
	prefix := ServiceRoot + c.id.String()
	if !strings.HasPrefix(location, "/") || strings.HasPrefix(location, "//") ||
		location == prefix || strings.HasPrefix(location, prefix+"/") {
		return location
	}
	return prefix + location
}

// ownPath returns a Set-Cookie header that reaches no other service and not the API:
// without a domain, and with a path below the prefix. It returns "" for a cookie with
// the name of Berth's.
func (c *serviceCall) ownPath(header string) string {
	parts := strings.Split(header, ";")
	if name, _, _ := strings.Cut(parts[0], "="); strings.EqualFold(strings.TrimSpace(name), cookieName) {
		return ""
	}
	path, kept := "/", parts[:1]
	for _, part := range parts[1:] {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case strings.EqualFold(name, "Path"):
			if strings.HasPrefix(value, "/") {
				path = value
			}
		case strings.EqualFold(name, "Domain"):
		default:
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, ";") + "; Path=" + c.below(path)
}
