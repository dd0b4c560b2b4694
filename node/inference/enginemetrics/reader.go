package enginemetrics

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"berth/loop"
)

const (
	readEvery = 15 * time.Second
	readFor   = 3 * time.Second // An engine answers within it or has no figures.
	maxReads  = 8               // Engines that are read at a time.
	maxTotal  = 512             // Replicas of this node that are read.
	maxHeader = 64 << 10
)

// Target is a replica that is ready, on this node.
type Target struct {
	Deployment, Engine string // The labels of its metrics.

	Replica string // For the log.
	Path    string // The path of the engine's metrics.
	Dial    func() (net.Conn, error)
}

// Config has the parts of the node that a Reader uses.
type Config struct {
	Targets func() []Target
	Logger  *slog.Logger
}

// Reader reads the engines of one node. It is a prometheus.Collector.
type Reader struct {
	cfg    Config
	descs  [figures]*prometheus.Desc
	failed map[string]bool // Replicas whose last reading failed; only Run uses it.

	mu sync.Mutex

	last map[labels]reading
}

// labels name the deployment and the engine of a replica.
type labels struct{ deployment, engine string }

// New returns a reader that Run operates.
func New(cfg Config) *Reader {
	return &Reader{cfg: cfg, descs: newDescs(), failed: make(map[string]bool)}
}

// Run reads the engines from time to time until ctx ends.
func (r *Reader) Run(ctx context.Context) error {
	loop.Every(ctx, readEvery, func() { r.readAll(ctx) })
	return nil
}

// readAll reads every engine once. A replica that is gone, is not ready or cannot be read
// is in no figure after it.
func (r *Reader) readAll(ctx context.Context) {
	targets := r.cfg.Targets()
	targets = targets[:min(len(targets), maxTotal)]
	errs := make([]error, len(targets))
	found := make([]reading, len(targets))
	var group errgroup.Group
	group.SetLimit(maxReads)
	for i := range targets {
		group.Go(func() error {
			found[i], errs[i] = read(ctx, &targets[i])
			return nil
		})
	}
	_ = group.Wait() // Their errors are in errs.
	next, failed := make(map[labels]reading), make(map[string]bool)
	for i, t := range targets {
		if errs[i] == nil {
			of := labels{t.Deployment, t.Engine}
			next[of] = next[of].and(&found[i])
			continue
		}
		failed[t.Replica] = true
		if !r.failed[t.Replica] && ctx.Err() == nil {
			r.cfg.Logger.Warn("engine metrics not read", "execution", t.Replica, "err", errs[i])
		}
	}
	r.failed = failed
	r.mu.Lock()
	r.last = next
	r.mu.Unlock()
}

// read asks one engine. Each reading has a connection of its own: it counts as no request,
// and none is left open to a replica that stops.
func read(ctx context.Context, t *Target) (out reading, err error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	transport := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return t.Dial() },
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine"+t.Path, nil)
	if err != nil {
		return out, fmt.Errorf("read the engine's metrics: %w", err)
	}
	req.Header.Set("Accept", "text/plain")
	answer, err := transport.RoundTrip(req) // A redirect is followed by nobody.
	if err != nil {
		return out, fmt.Errorf("read the engine's metrics: %w", err)
	}
	defer answer.Body.Close()
	return parse(answer)
}
