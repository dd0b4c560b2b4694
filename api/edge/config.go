package edge

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/api/auth"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/archive"
	"berth/fsm/command"
)

// Proposer changes the state.
type Proposer interface {
	// Propose returns the state's result of cmd and its Raft index. A refusal
	// is an error with a code. The op id of a command makes it safe to propose
	// it again.
	Propose(ctx context.Context, cmd command.Command) (command.Result, uint64, error)
}

// Reader reads the state.
type Reader interface {
	// Read returns a view that includes everything acknowledged before the
	// call, on any node.
	Read(ctx context.Context) (*fsm.View, error)
	// Stale returns the newest local view and how old it may be.
	Stale() (view *fsm.View, lastContact time.Duration, knownLeader bool)
	// Wait returns the local view once its index is above after.
	Wait(ctx context.Context, after uint64) (*fsm.View, error)
	// Status returns the values of the X-Berth-* headers.
	Status() (index uint64, knownLeader bool, lastContact time.Duration)
}

// Archives reads executions that have left the state.
type Archives interface {
	// Open returns the content of an archive from any node that has its blob.
	// The error's code is unavailable if none can be read.
	Open(ctx context.Context, a *archive.Record) (*archive.File, error)
}

// Config has the settings of a Server and the parts of the node that every
// request uses.
type Config struct {
	// Relay forwards requests, on a node without a replica. The fields for
	// reading and changing the state are not needed there.
	Relay Relay

	Proposer Proposer
	Reader   Reader
	Archives Archives
	Services Services // Nil on a node without a replica.
	Models   Models   // The same.
	Tokens   Tokens   // The same.

	ModelLimits ModelLimits

	// ServiceRelay has a server answer requests to services, on a node without a
	// replica.
	ServiceRelay http.RoundTripper

	// S3 has the S3 gateway answer requests below S3Root; nil for none.
	S3 http.RoundTripper

	// ServicesURL is the base of the URLs of services, if they have an origin of
	// their own. Empty for that of the API.
	ServicesURL string

	// Unseal returns the private half of a signing key.
	Unseal func(compute.SigningKey) (ed25519.PrivateKey, error)

	StreamKey  []byte // Makes stream tokens; the same on every node.
	RefreshKey []byte // Makes refresh tokens' successors and hashes of requests; the same on every node.

	AccessTTL  time.Duration // Lifetime of access tokens; 15 minutes when zero.
	RefreshTTL time.Duration // Lifetime of refresh tokens; 30 days when zero.

	// PasswordCost is the cost of hashing a new password;
	// auth.DefaultPasswordCost if zero.
	PasswordCost auth.PasswordCost

	// PublicURL is the base of URLs in answers. Empty for the URL that the
	// client used.
	PublicURL string
	TLS       *tls.Config // Nil for plain HTTP.
	Front     Front
	Limits    Limits // Zero fields are DefaultLimits'.

	// Crowded is called when several requests are answered at once. It must not wait. Nil for
	// nothing.
	Crowded func()

	// MetricsToken is the bearer token that a scraper must send. Empty for
	// none.
	MetricsToken string
	// MetricsLocal has metrics be for clients of this machine alone, while there is no token.
	MetricsLocal bool

	// Now returns the wall-clock time, for credentials and identifiers.
	// Stopwatch is monotonic, for durations. Both are time.Now if nil.
	Now, Stopwatch func() time.Time

	Rand       io.Reader // crypto/rand when nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Validate reports all missing fields at once.
func (c *Config) Validate() error {
	parts := errors.Join(
		missing(c.Logger == nil, "Logger"), missing(c.Registerer == nil, "Registerer"),
	)
	if c.Relay != nil {
		return parts
	}
	return errors.Join(
		parts, missing(c.Proposer == nil, "Proposer"), missing(c.Reader == nil, "Reader"),
		missing(c.Unseal == nil, "Unseal"),
		missing(len(c.StreamKey) == 0, "StreamKey"), missing(len(c.RefreshKey) == 0, "RefreshKey"),
	)
}

// missing returns the error for a setting if it is absent.
func missing(absent bool, name string) error {
	if !absent {
		return nil
	}
	return errors.New(name + " is missing")
}

// setDefaults fills what may be left out.
func (c *Config) setDefaults() {
	c.Limits = c.Limits.withDefaults()
	if c.AccessTTL == 0 {
		c.AccessTTL = 15 * time.Minute
	}
	if c.RefreshTTL == 0 {
		c.RefreshTTL = 30 * 24 * time.Hour
	}
	if c.PasswordCost == (auth.PasswordCost{}) {
		c.PasswordCost = auth.DefaultPasswordCost()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Stopwatch == nil {
		c.Stopwatch = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
}

// Limits bound the load that clients can put on a node. The operator may change
// them.
type Limits struct {
	StartBody  int // Bytes of a start body.
	Body       int // Bytes of any other body, of a caller with a credential.
	Bodies     int // Bytes of bodies over InlineBody that the node holds at once.
	Conns      int // Connections at once.
	ConnsPerIP int // Connections at once from one IPv4 address, or from one /64 of IPv6.
	Streams    int // Output streams and held answers at once.

	// A burst is as many requests at once as come in burstSeconds, or in anonSeconds, unless
	// it is given.
	Rate       float64 // Requests per second of one key or user.
	Burst      int
	OrgRate    float64 // Requests per second of one organization.
	OrgBurst   int
	AnonRate   float64 // Requests per second without a good credential, of one address.
	AnonBurst  int
	LoginRate  float64 // Sign-ins per minute of one account from one network: see credentials.
	LoginBurst int

	// ReadTimeout is how long the header and the body of a request may take
	// together; six times that for those that start an execution.
	ReadTimeout time.Duration
	// LastLines is how long an output stream waits for another line once the
	// execution has ended.
	LastLines time.Duration
	// StaleAuthMax is how long credentials are checked against the last known
	// state while no leader is known.
	StaleAuthMax time.Duration
}

// DefaultLimits returns the limits of a node that nobody configured.
func DefaultLimits() Limits {
	return Limits{
		StartBody: 8 << 20, Body: 1 << 20, Bodies: 64 << 20,
		Conns: 8192, ConnsPerIP: 2048, Streams: 4096,
		Rate: 50_000, OrgRate: 100_000, AnonRate: 50,
		LoginRate: 5, LoginBurst: 10,
		ReadTimeout: 10 * time.Second, LastLines: 15 * time.Second, StaleAuthMax: 10 * time.Minute,
	}
}

// Seconds of its rate that a client may use at once.
const (
	burstSeconds = 2
	anonSeconds  = 10
)

// burst returns how many requests come in some seconds, at least one.
func burst(rate, seconds float64) int { return max(1, int(rate*seconds)) }

// withDefaults returns l with the default for each field that is zero.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	for _, f := range []struct {
		value *float64
		other float64
	}{{&l.Rate, d.Rate}, {&l.OrgRate, d.OrgRate}, {&l.AnonRate, d.AnonRate}, {&l.LoginRate, d.LoginRate}} {
		if *f.value == 0 {
			*f.value = f.other
		}
	}
	for _, f := range []struct {
		value *int
		other int
	}{
		{&l.StartBody, d.StartBody},
		{&l.Body, d.Body},
		{&l.Bodies, d.Bodies},
		{&l.Conns, d.Conns},
		{&l.ConnsPerIP, d.ConnsPerIP},
		{&l.Streams, d.Streams},
		{&l.Burst, burst(l.Rate, burstSeconds)},
		{&l.OrgBurst, burst(l.OrgRate, burstSeconds)},
		{&l.AnonBurst, burst(l.AnonRate, anonSeconds)},
		{&l.LoginBurst, d.LoginBurst},
	} {
		if *f.value == 0 {
			*f.value = f.other
		}
	}
	if l.ReadTimeout == 0 {
		l.ReadTimeout = d.ReadTimeout
	}
	if l.LastLines == 0 {
		l.LastLines = d.LastLines
	}
	if l.StaleAuthMax == 0 {
		l.StaleAuthMax = d.StaleAuthMax
	}
	return l
}
