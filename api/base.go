package api

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// base is what the server and every handler share: the settings, and the way to
// propose and to read.
type base struct {
	cfg         EdgeConfig
	log         *slog.Logger
	metrics     *metrics
	credentials *credentials
	requestKey  []byte // Of the hashes that identify requests.
	inflight    *inflight
	draining    atomic.Bool

	bodies         *budget // Of larger request bodies.
	operatorBodies *budget // The same for requests of operators.

	orgStreams    *budget // Streams and held answers, by organization.
	callerStreams *budget // The same, by key or user.
	downloads     *budget // Of operators.
	relays        relays  // What a worker relays.
}

func newBase(cfg EdgeConfig) (*base, error) {
	credentials, err := newCredentials(cfg)
	if err != nil {
		return nil, err
	}
	return &base{
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

// config returns the settings, with the defaults of what was left out.
func (c *base) config() EdgeConfig { return c.cfg }

func (c *base) now() time.Time { return c.cfg.Now() }

// took returns the time since a request began.
func (c *base) took(r *request) time.Duration { return c.cfg.Stopwatch().Sub(r.begun) }
