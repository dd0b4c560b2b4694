package api

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// core is what the server and every group of handlers share: the parts of the
// node that Config hands over, and the way to propose and to read.
type core struct {
	cfg         Config
	log         *slog.Logger
	metrics     *metrics
	credentials *credentials
	requestKey  []byte // Of the hashes that identify requests.
	inflight    *inflight
	draining    atomic.Bool
	openapi     []byte

	bodies         *budget // Of larger request bodies.
	operatorBodies *budget // The same for requests of operators.

	orgStreams    *budget // Streams and held answers, by organization.
	callerStreams *budget // The same, by key or user.
	downloads     *budget // Of operators.
	relays        relays  // What a worker relays.
}

func newCore(cfg Config) (*core, error) {
	credentials, err := newCredentials(cfg)
	if err != nil {
		return nil, err
	}
	return &core{
		cfg:         cfg,
		log:         cfg.Logger.With("part", "api"),
		metrics:     newMetrics(cfg.Registerer),
		credentials: credentials,
		requestKey:  requestKey(cfg.RefreshKey),
		inflight:    newInflight(),

		bodies:         newBudget(cfg.Limits.Bodies, cfg.Limits.Bodies/bodyShare),
		operatorBodies: newBudget(operatorBodies, operatorBodies),

		orgStreams:    newBudget(cfg.Limits.Streams, max(1, cfg.Limits.Streams/orgStreamShare)),
		callerStreams: newBudget(cfg.Limits.Streams, max(1, cfg.Limits.Streams/callerStreamShare)),
		downloads:     newBudget(maxDownloads, maxDownloads),
		relays:        newRelays(),
	}, nil
}

func (c *core) now() time.Time { return c.cfg.Now() }

// took returns the time since a request began.
func (c *core) took(r *request) time.Duration { return c.cfg.Stopwatch().Sub(r.begun) }
