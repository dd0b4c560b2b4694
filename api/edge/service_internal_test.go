package edge

import (
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"berth/api/edge/connection"
	"berth/compute"
)

// aCall returns a request to a service with no server around it.
func aCall(header ...string) *serviceCall {
	c := &serviceCall{Server: &Server{Core: &Core{}}, ctx: new(fasthttp.RequestCtx), r: &Request{IP: "192.0.2.1"}}
	c.id.UUID = compute.UUID{1}
	for i := 0; i < len(header); i += 2 {
		c.ctx.Request.Header.Add(header[i], header[i+1])
	}
	return c
}

// TestCookiesOfServices keeps the cookies of a service below its path.
func TestCookiesOfServices(t *testing.T) {
	c := aCall()
	prefix := ServiceRoot + c.id.String()
	for given, want := range map[string]string{
		"a=1":                                  "a=1; Path=" + prefix + "/",
		"a=1; Path=/":                          "a=1; Path=" + prefix + "/",
		"a=1; path=/x; HttpOnly":               "a=1; HttpOnly; Path=" + prefix + "/x",
		"a=1; Path=" + prefix + "/y":           "a=1; Path=" + prefix + "/y",
		"a=1; Path=/services/other/":           "a=1; Path=" + prefix + "/services/other/",
		"a=1; Domain=example.org; Secure":      "a=1; Secure; Path=" + prefix + "/",
		"a=1; Path=/; Path=" + prefix + "evil": "a=1; Path=" + prefix + prefix + "evil",
		"berth_service=stolen; Path=/":         "",
		" Berth_Service =stolen":               "",
	} {
		if got := c.ownPath(given); strings.ReplaceAll(got, "; ", ";") != strings.ReplaceAll(want, "; ", ";") {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
	for given, want := range map[string]string{
		"a=1; berth_service=secret; b=2": "a=1; b=2",
		"BERTH_SERVICE=secret":           "",
		"a=1":                            "a=1",
	} {
		if got := withoutOwnCookie(given); got != want {
			t.Errorf("of %q the program sees %q, want %q", given, got, want)
		}
	}
}

// TestLocationsOfServices keeps redirects of a service below its path.
func TestLocationsOfServices(t *testing.T) {
	c := aCall()
	prefix := ServiceRoot + c.id.String()
	for given, want := range map[string]string{
		"/login": prefix + "/login", prefix + "/x": prefix + "/x", "next": "next", "//evil.example/": "//evil.example/",
		"https://example.org/": "https://example.org/", prefix + "x/": prefix + prefix + "x/",
	} {
		if got := c.below(given); got != want {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
}

// TestHeadersToServices checks the headers of a request that a program gets.
func TestHeadersToServices(t *testing.T) {
	c := aCall("Connection", "keep-alive, X-Hop", "X-Hop", "1", "Keep-Alive", "5", "Te", "trailers", "X-Forwarded-For", "10.0.0.1",
		"X-Real-Ip", "10.0.0.1", "Authorization", "Basic dXNlcjpwYXNz", "X-Org-Slug", "lab", "X-Own", "a", "X-Own", "b",
		"Cookie", "berth_service=x", "Transfer-Encoding", "chunked")
	got := c.requestHeader("")
	want := http.Header{
		"Authorization": {"Basic dXNlcjpwYXNz"}, "X-Own": {"a", "b"}, "User-Agent": {""},
		"X-Forwarded-Prefix": {ServiceRoot + c.id.String()},
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
	for name, values := range want {
		if strings.Join(got.Values(name), ",") != strings.Join(values, ",") {
			t.Errorf("%s is %q, want %q", name, got.Values(name), values)
		}
	}
	if got := c.requestHeader("websocket"); got.Get("Connection") != "Upgrade" || got.Get("Upgrade") != "websocket" {
		t.Errorf("to switch the protocol it has %v", got)
	}
}

// TestHeadersOfServices drops what would act on the API or on other services.
func TestHeadersOfServices(t *testing.T) {
	c := aCall()
	answer := &http.Response{StatusCode: http.StatusTeapot, Header: http.Header{
		"Connection": {"X-Hop"}, "X-Hop": {"1"}, "Keep-Alive": {"1"}, "Set-Cookie": {"a=1", "b=2", "berth_service=x"},
		"Content-Security-Policy": {"default-src 'self'"}, "X-Own": {"1"},
	}}
	for _, name := range ofOrigin() {
		answer.Header.Set(name, "x")
	}
	c.writeAnswer(answer)
	h := &c.ctx.Response.Header
	for _, name := range append(ofOrigin(), "X-Hop", "Keep-Alive") {
		if got := h.Peek(name); len(got) > 0 {
			t.Errorf("%s passes: %q", name, got)
		}
	}
	policies := h.PeekAll("Content-Security-Policy")
	if c.ctx.Response.StatusCode() != http.StatusTeapot || string(h.Peek("X-Own")) != "1" || len(policies) != 2 {
		t.Errorf("%d, %s with the policies %q", c.ctx.Response.StatusCode(), h, policies)
	}
	cookies := 0
	for range h.Cookies() {
		cookies++
	}
	if cookies != 2 {
		t.Errorf("%d cookies pass", cookies)
	}
	c = aCall()
	c.cfg.ServicesURL = "https://services.example.com"
	c.ctx.Request.SetHost("services.example.com")
	c.protect()
	if got := c.ctx.Response.Header.Peek("Content-Security-Policy"); len(got) > 0 {
		t.Errorf("on a host name of its own it has %q", got)
	}
}

// TestPathsToServices holds that a program gets the path of a request as the client sent it,
// and its own host.
func TestPathsToServices(t *testing.T) {
	for _, path := range []string{"", "/", "/a/b", "//a/b", "//", "///x", "//a%2Fb//c%20d", "/%zz", "//user@host:80/x;y=1"} {
		for _, query := range []string{"", "q=//x"} {
			c := aCall("Host", "berth.test")
			c.path, c.query = path, query
			req := c.request(t.Context(), new(connection.RequestBody), http.Header{})
			req.URL.Host = "replica:80"
			var sent strings.Builder
			if err := req.Write(&sent); err != nil {
				t.Fatal(err)
			}
			want := path
			if path == "" {
				want = "/"
			}
			if query != "" {
				want += "?" + query
			}
			want = "GET " + want + " HTTP/1.1\r\nHost: berth.test\r\n"
			if !strings.HasPrefix(sent.String(), want) {
				t.Errorf("%q becomes %.60q", path, sent.String())
			}
		}
	}
}
