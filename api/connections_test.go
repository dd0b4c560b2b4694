package api_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/api"
	"berth/api/edge"
	"berth/api/wire"
)

// listenWithin serves the world on a port of its own with limits, and TLS if it is given. It
// returns the address.
func (w *world) listenWithin(secured *tls.Config, limits edge.Limits) string {
	w.Helper()
	registry, cfg := prometheus.NewRegistry(), w.cfg
	cfg.TLS, cfg.Registerer, cfg.Gatherer, cfg.Limits = secured, registry, registry, limits
	server, err := api.New(cfg)
	w.ok(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.ok(err)
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	w.Cleanup(func() {
		cancel()
		w.ok(<-ended)
	})
	return l.Addr().String()
}

// TestConnectionsBeyondLimits opens more connections than an address, and than all may have:
// they are refused in the form of every error, with and without TLS. Those that neither ask nor
// read end soon, and keep nobody out.
func TestConnectionsBeyondLimits(t *testing.T) {
	w := newWorld(t)
	helper := httptest.NewTLSServer(nil)
	helper.Close()
	for name, try := range map[string]struct {
		tls    *tls.Config
		limits edge.Limits
		status int
	}{
		"all":                   {nil, edge.Limits{Conns: 2}, http.StatusServiceUnavailable},
		"of an address":         {nil, edge.Limits{ConnsPerIP: 2}, http.StatusTooManyRequests},
		"all, by TLS":           {helper.TLS, edge.Limits{Conns: 2}, http.StatusServiceUnavailable},
		"of an address, by TLS": {helper.TLS, edge.Limits{ConnsPerIP: 2}, http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			address, scheme := w.listenWithin(try.tls, try.limits), "http"
			if try.tls != nil {
				scheme = "https"
			}
			dial := func() net.Conn {
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
				w.ok(err)
				t.Cleanup(func() { conn.Close() })
				w.ok(conn.SetDeadline(time.Now().Add(30 * time.Second)))
				return conn
			}
			held := []net.Conn{dial(), dial()}
			client := helper.Client()
			client.Timeout = 30 * time.Second
			defer client.CloseIdleConnections()
			ping := func() answer {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+address+"/livez", nil)
				w.ok(err)
				resp, err := client.Do(req)
				w.ok(err)
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				w.ok(err)
				if resp.StatusCode == try.status && !resp.Close {
					t.Error("a refusal does not say that the connection closes")
				}
				return answer{resp.StatusCode, resp.Header, body}
			}
			a := ping()
			var refused wire.Error
			if json.Unmarshal(a.body, &refused) != nil || refused.Code != "too_many_connections" || refused.Detail == "" ||
				a.status != try.status || a.header.Get("Retry-After") == "" ||
				a.header.Get("Content-Type") != "application/json" || a.header.Get("X-Request-Id") == "" {
				t.Errorf("answered %d %v %s", a.status, a.header, a.body)
			}
			silent := make([]net.Conn, 30)
			for i := range silent {
				silent[i] = dial()
			}
			for i, conn := range silent {
				data, err := io.ReadAll(conn)
				if err != nil || try.tls == nil && !bytes.Contains(data, []byte("too_many_connections")) {
					t.Errorf("silent client %d reads %q, %v", i, data, err)
				}
			}
			for _, conn := range held {
				conn.Close()
			}
			for a = ping(); a.status == try.status; a = ping() {
			}
			if a.status != http.StatusOK {
				t.Errorf("after others have closed: %d %s", a.status, a.body)
			}
		})
	}
}
