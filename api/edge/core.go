package edge

import (
	"log/slog"
	"sync/atomic"
	"time"

	"berth/compute"
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
	inflight    *inflight
	draining    atomic.Bool
	underWay    atomic.Int32 // Requests.

	bodies         *budget // Bytes of larger request bodies.
	operatorBodies *budget // The same for requests of operators,
	reportBodies   *budget // and for reports, by address.
	answers        answers
	turns          *turns

	orgStreams    *budget // Streams and held answers, by organization.
	callerStreams *budget // The same, by key or user.
	downloads     *budget // Downloads of operators.
	files         *budget // Files that are sent, by organization.
	served        *budget // Requests to services, by organization.
	modelsServed  *budget // Requests to models, by organization.
	modelRates    *modelRates
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
		inflight:    newInflight(),

		bodies:         newBudget(cfg.Limits.Bodies, cfg.Limits.Bodies/bodyShare),
		operatorBodies: newBudget(operatorBodies, operatorBodies),
		reportBodies:   newBudget(reportBodies, reportBodies/reportShare),
		answers:        newAnswers(),
		turns:          newTurns(),

		orgStreams:    newBudget(cfg.Limits.Streams, max(1, cfg.Limits.Streams/orgStreamShare)),
		callerStreams: newBudget(cfg.Limits.Streams, max(1, cfg.Limits.Streams/callerStreamShare)),
		downloads:     newBudget(maxDownloads, maxDownloads),
		files:         newBudget(maxFiles, maxFiles/filesShare),
		served:        newBudget(maxServed, maxServed/servedShare),
		modelsServed:  newBudget(maxServed, int(max(cfg.ModelLimits.InFlight, 1))),
		modelRates:    &modelRates{buckets: make(map[compute.UUID]bucket)},
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
