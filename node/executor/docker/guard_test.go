package docker_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"berth/compute"
	"berth/node/executor/docker"
	"berth/node/executor/docker/dockertest"
)

// rebinding returns a resolver for whose names each look-up gets the next address, and the
// last one from then on. Without addresses there are no such names.
func rebinding(t *testing.T, answers ...string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var mu sync.Mutex
	next := func() [4]byte {
		mu.Lock()
		defer mu.Unlock()
		address := netip.MustParseAddr(answers[0])
		if len(answers) > 1 {
			answers = answers[1:]
		}
		return address.As4()
	}
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if err := m.Unpack(buf[:n]); err != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			if len(answers) == 0 {
				m.RCode = dnsmessage.RCodeNameError
			}
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA && len(answers) > 0 {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: next()},
				}}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// serveAt serves on an address, and counts the requests.
func serveAt(t *testing.T, address string, handler http.Handler) (port string, requests *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int64)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("Connection", "close") // The next request connects again.
		handler.ServeHTTP(w, r)
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	_, port, err = net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, requests
}

// TestPullRebinding holds that each connection of a pull is checked. A name that led to a
// public address when the pull began leads to this machine later. 127.0.0.2 stands for a
// public address, and 127.0.0.1 must not be reached.
func TestPullRebinding(t *testing.T) {
	registry := dockertest.NewRegistry(t, "", "")
	ref := registry.Push(t, "team/rebound", "1")
	t.Cleanup(func() { dockertest.Remove(t, ref) })
	port, outside := serveAt(t, "127.0.0.2:0", registry)
	_, within := serveAt(t, "127.0.0.1:"+port, registry)
	want := docker.Want{Ref: "registry.localhost:" + port + "/team/rebound:1", Org: compute.OrgID{UUID: compute.UUID{1}}}
	for name, test := range map[string]struct {
		answers []string
		reached int64
	}{
		"at once":                  {[]string{"127.0.0.1"}, 0},
		"after the first requests": {[]string{"127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.1"}, 1},
	} {
		e := newEngine(t, func(c *docker.Config) { c.Resolver = rebinding(t, test.answers...) })
		e.Deny(netip.MustParsePrefix("127.0.0.1/32"))
		before := outside.Load()
		_, err := e.Image(t.Context(), want, func(string) {})
		if !docker.IsRefusal(err) || !strings.Contains(err.Error(), "127.0.0.1 is not a public address") {
			t.Errorf("%s: %v", name, err)
		}
		if within.Load() > 0 || outside.Load()-before < test.reached {
			t.Errorf("%s: %d requests on this machine, %d outside", name, within.Load(), outside.Load()-before)
		}
	}
	e := newEngine(t, func(c *docker.Config) { c.Resolver = rebinding(t, "127.0.0.2") })
	e.Deny(netip.MustParsePrefix("127.0.0.1/32"))
	image, err := e.Image(t.Context(), want, func(string) {})
	if err != nil || image.Ref != want.Ref || ref == want.Ref {
		t.Fatalf("a name that stays public: %+v, %v", image, err)
	}
}

// TestPullRedirect holds that a registry cannot redirect a pull to an address that the
// operator does not allow, and that the other host gets no credentials.
func TestPullRedirect(t *testing.T) {
	registry := dockertest.NewRegistry(t, "ada", "secret")
	ref := registry.Push(t, "team/redirected", "1")
	t.Cleanup(func() { dockertest.Remove(t, ref) })
	blobs := dockertest.NewRegistry(t, "", "")
	blobs.Push(t, "team/redirected", "1")
	var shown atomic.Bool
	port, reached := serveAt(t, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			shown.Store(true)
		}
		blobs.ServeHTTP(w, r)
	}))
	registry.Elsewhere = "http://127.0.0.1:" + port
	want := docker.Want{
		Ref: ref, Org: compute.OrgID{UUID: compute.UUID{1}},
		Credentials: &compute.RegistryCredentials{Username: "ada", Password: "secret"},
	}
	e := newEngine(t, func(c *docker.Config) { c.Registries = []string{registry.Host} })
	if _, err := e.Image(t.Context(), want, func(string) {}); !docker.IsRefusal(err) ||
		!strings.Contains(err.Error(), "the operator does not allow 127.0.0.1:"+port) || reached.Load() > 0 {
		t.Errorf("redirected to this machine: %v, %d requests", err, reached.Load())
	}
	e = newEngine(t, func(c *docker.Config) { c.Registries = []string{registry.Host, "127.0.0.1:" + port} })
	_, err := e.Image(t.Context(), want, func(string) {})
	if err != nil || reached.Load() == 0 || shown.Load() {
		t.Fatalf("redirected to an allowed host: %v, %d requests, credentials shown %t", err, reached.Load(), shown.Load())
	}
}

// TestPullOfUnknownRegistry is the user's to fix.
func TestPullOfUnknownRegistry(t *testing.T) {
	e := newEngine(t, func(c *docker.Config) { c.Resolver = rebinding(t) })
	_, err := e.Image(t.Context(), docker.Want{Ref: "registry.example/team/x:1"}, func(string) {})
	if !docker.IsRefusal(err) || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("got %v", err)
	}
}

// TestPullFailsClosed holds that nothing is pulled when a name cannot be looked up.
func TestPullFailsClosed(t *testing.T) {
	e := newEngine(t, func(c *docker.Config) {
		c.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no name server")
		}}
	})
	_, err := e.Image(t.Context(), docker.Want{Ref: "registry.example/team/x:1"}, func(string) {})
	if err == nil || docker.IsRefusal(err) || !strings.Contains(err.Error(), "no name server") {
		t.Errorf("got %v", err)
	}
}
