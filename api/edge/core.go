package edge

import (
	"log/slog"
	"sync/atomic"
	"time"

	"berth/api/edge/limit"
)

// Core is shared by the server and every handler. It has the settings, the
// credentials, and the ways to propose and to read.
type Core struct {
	cfg         Config
	log         *slog.Logger
	metrics     *metrics
	models      *modelMetrics
	Credentials *Credentials
	requestKey  []byte // Makes the hashes that identify requests.
	inflight    *limit.Inflight
	draining    atomic.Bool
	underWay    atomic.Int32 // Requests.

	bodies         *limit.Budget // Bytes of larger request bodies.
	operatorBodies *limit.Budget // The same for requests of operators,
	reportBodies   *limit.Budget // and for reports, by address.
	answers        answers
	turns          *turns

	orgStreams    *limit.Budget // Streams and held answers, by organization.
	callerStreams *limit.Budget // The same, by key or user.
	downloads     *limit.Budget // Downloads of operators.
	files         *limit.Budget // Files that are sent, by organization.
	served        *limit.Budget // Requests to services, by organization.
	modelsServed  *limit.Budget // Requests to models, by organization.
	modelRates    *limit.Rates
	relays        relays // Requests that workers relay.
}

func newCore(cfg Config) (*Core, error) {
	credentials, err := newCredentials(cfg)
	if err != nil {
		return nil, err
	}
	return &Core{
		cfg:         cfg,
		log:         cfg.Logger.With("part", "api"),
		metrics:     newMetrics(cfg.Registerer),
		models:      newModelMetrics(cfg.Registerer),
		Credentials: credentials,
		requestKey:  requestKey(cfg.RefreshKey),
		inflight:    limit.NewInflight(),

		bodies:         limit.NewBudget(cfg.Limits.Bodies, cfg.Limits.Bodies/bodyShare),
		operatorBodies: limit.NewBudget(operatorBodies, operatorBodies),
		reportBodies:   limit.NewBudget(reportBodies, reportBodies/reportShare),
		answers:        newAnswers(),
		turns:          newTurns(),

		orgStreams:    limit.NewBudget(cfg.Limits.Streams, max(1, cfg.Limits.Streams/orgStreamShare)),
		callerStreams: limit.NewBudget(cfg.Limits.Streams, max(1, cfg.Limits.Streams/callerStreamShare)),
		downloads:     limit.NewBudget(maxDownloads, maxDownloads),
		files:         limit.NewBudget(maxFiles, maxFiles/filesShare),
		served:        limit.NewBudget(maxServed, maxServed/servedShare),
		modelsServed:  limit.NewBudget(maxServed, int(max(cfg.ModelLimits.InFlight, 1))),
		modelRates:    limit.NewRates(),
		relays:        newRelays(),
	}, nil
}

// Config returns the settings, with the defaults of what was left out.
func (c *Core) Config() Config { return c.cfg }

// Now returns the wall-clock time.
func (c *Core) Now() time.Time { return c.cfg.Now() }

// took returns the time since a request began.
func (c *Core) took(r *Request) time.Duration { return c.cfg.Stopwatch().Sub(r.begun) }

// Draining reports whether clients are sent elsewhere.
func (c *Core) Draining() bool { return c.draining.Load() }
