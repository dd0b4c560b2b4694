package callback

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"berth/compute"
)

// rebinding is a name server whose answers change: each look-up of a name gets the next
// address, and the last one from then on.
type rebinding struct {
	mu      sync.Mutex
	answers []string
	asked   int
}

// newRebinding returns a resolver that asks a rebinding name server.
func newRebinding(t *testing.T, answers ...string) (*rebinding, *net.Resolver) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r := &rebinding{answers: answers}
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := r.answer(buf[:n]); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return r, &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// answer returns the answer to a question.
func (r *rebinding) answer(question []byte) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil || len(m.Questions) != 1 {
		return nil
	}
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
		r.mu.Lock()
		address := netip.MustParseAddr(r.answers[min(r.asked, len(r.answers)-1)])
		r.asked++
		r.mu.Unlock()
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
			Body:   &dnsmessage.AResource{A: address.As4()},
		}}
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}

// TestRebinding holds that an address is checked when it is connected to. A name that led
// to an allowed address at the previous look-up may lead to a forbidden one now.
// 127.0.0.2 stands for a public address, and 127.0.0.1 must not be reached.
func TestRebinding(t *testing.T) {
	reached := make(chan string, 10)
	outside, port := mustServeBoth(t, reached)
	cas := x509.NewCertPool()
	cas.AddCert(outside.Certificate())
	server, resolver := newRebinding(t, "127.0.0.2", "127.0.0.1")
	s := newSender(cas, time.Now)
	cfg := s.cfg
	cfg.Allow, cfg.Resolver = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, resolver
	s = New(cfg)
	s.reset()
	c := &compute.Callback{Execution: compute.ExecutionID{UUID: compute.UUID{1}}, URL: "https://example.com:" + port + "/"}
	if code, err := s.send(t.Context(), empty(), c, c.URL); err != nil || code != http.StatusOK {
		t.Fatalf("the first look-up: %d, %v", code, err)
	}
	if code, err := s.send(t.Context(), empty(), c, c.URL); err == nil || !strings.Contains(err.Error(), "not a public address") {
		t.Errorf("the second look-up: %d, %v", code, err)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if first := <-reached; first != "127.0.0.2" || len(reached) > 0 || server.asked < 2 {
		t.Errorf("%s was reached, and %d more, after %d look-ups", first, len(reached), server.asked)
	}
}

// mustServeBoth serves on one port of two addresses, and returns the server on 127.0.0.2.
func mustServeBoth(t *testing.T, reached chan<- string) (outside *httptest.Server, port string) {
	t.Helper()
	for range 20 { // The port may be taken on the other address.
		first, err := net.Listen("tcp", "127.0.0.2:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, err = net.SplitHostPort(first.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		second, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			_ = first.Close()
			continue
		}
		serveOn(t, second, "127.0.0.1", reached)
		return serveOn(t, first, "127.0.0.2", reached), port
	}
	t.Fatal("no port is free on both addresses")
	return nil, ""
}

// serveOn serves HTTPS on a listener, and reports each request under a name.
func serveOn(t *testing.T, l net.Listener, name string, reached chan<- string) *httptest.Server {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached <- name
		w.Header().Set("Connection", "close") // The next try connects again.
	}))
	_ = s.Listener.Close()
	s.Listener = l
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}
