package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
)

// names is a resolver that knows what is in it, and addresses.
type names map[string]string

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if known, ok := n[host]; ok {
		host = known
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return nil, errors.New("no such host")
	}
	return []netip.Addr{addr}, nil
}

func TestNodeAddrsResolveNames(t *testing.T) {
	nodes := []*compute.Node{
		{RPC: "gpu-1.example:6471", Gossip: "gpu-1.example:6472"},
		{RPC: "10.0.0.2:6471", Gossip: "[::ffff:10.0.0.3]:6472"},
		{RPC: "gone.example:6471", Gossip: "not an address"},
	}
	addrs, unresolved := nodeAddrs(t.Context(), names{"gpu-1.example": "203.0.113.9"}, nodes)
	if want := "[10.0.0.2/32 10.0.0.3/32 203.0.113.9/32]"; fmt.Sprint(addrs) != want {
		t.Errorf("got %v, want %s", addrs, want)
	}
	if !slices.Equal(unresolved, []string{"gone.example"}) {
		t.Errorf("got %v unresolved, want gone.example", unresolved)
	}
}

func TestMetricsWantTheToken(t *testing.T) {
	tests := []struct {
		name, token, given, path string
		want                     int
	}{
		{"open", "", "", "/metrics", http.StatusOK},
		{"missing", "s3cret", "", "/metrics", http.StatusUnauthorized},
		{"wrong", "s3cret", "Bearer other", "/metrics", http.StatusUnauthorized},
		{"right", "s3cret", "Bearer s3cret", "/metrics", http.StatusOK},
		{"profiles without a token", "", "", "/debug/pprof/", http.StatusNotFound},
		{"profiles", "s3cret", "Bearer s3cret", "/debug/pprof/", http.StatusOK},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, test.path, nil)
			r.Header.Set("Authorization", test.given)
			w := httptest.NewRecorder()
			metricsHandler(prometheus.NewRegistry(), test.token).ServeHTTP(w, r)
			if w.Code != test.want {
				t.Errorf("got %d, want %d", w.Code, test.want)
			}
		})
	}
}

// hungLog is a log on a disk that hangs.
type hungLog struct {
	slog.Handler
	release chan struct{}
}

func (h hungLog) Handle(context.Context, slog.Record) error { <-h.release; return nil }

// TestProcessEndsThoughItsLogHangs holds that a process whose log is on the disk
// that hangs ends nevertheless.
func TestProcessEndsThoughItsLogHangs(t *testing.T) {
	h := hungLog{slog.DiscardHandler, make(chan struct{})}
	defer close(h.release)
	code := 0
	endProcess(slog.New(h), errors.New("a write has hung"), func(c int) { code = c })
	if code != 1 {
		t.Errorf("the process ended with %d, want 1", code)
	}
}

// TestMetricsTokenIsThere checks that metrics are open only if no token is configured,
// not if its file is lost.
func TestMetricsTokenIsThere(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, tt := range map[string]struct {
		path, want string
		ok         bool
	}{
		"none configured": {"", "", true},
		"a token":         {write("token", "secret\n"), "secret", true},
		"a missing file":  {filepath.Join(dir, "gone"), "", false},
		"an empty file":   {write("empty", "\n"), "", false},
	} {
		if got, err := metricsToken(tt.path); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}
