package api

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/api/auth"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// Proposer changes the state.
type Proposer interface {
	// Propose returns the state's result of cmd and its Raft index. A refusal
	// is an error with a code. The op id of a command makes it safe to propose
	// it again.
	Propose(ctx context.Context, cmd fsm.Command) (fsm.Result, uint64, error)
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

// Line is one line of an execution's output.
type Line struct {
	Seq     uint64 // Rises over all attempts of the execution; a stream resumes behind it.
	At      compute.Instant
	Stream  string // stdout, stderr or system.
	Text    []byte // Without its line feed.
	Partial bool   // There was no line feed: the next line of the stream continues it.
}

// Output is the end of what an execution wrote.
type Output struct {
	Stdout, Stderr, Combined []byte
	Truncated                bool // There was more than is here.
}

// Logs reads what executions wrote, wherever that is kept.
type Logs interface {
	// Follow calls fn with the lines after the sequence number, in order,
	// without gap or repeat, until the output is complete, fn returns an error
	// or ctx ends. fn may not keep the lines.
	Follow(ctx context.Context, id compute.ExecutionID, after uint64, fn func([]Line) error) error
	// Tail returns the last maxBytes of each stream.
	Tail(ctx context.Context, id compute.ExecutionID, maxBytes int) (Output, error)
	// Delete removes all output of a terminal execution.
	Delete(ctx context.Context, id compute.ExecutionID) error
}

// Blobs keeps bundles that are too large for a command.
type Blobs interface {
	// Put returns once data is durable on as many nodes as storage.replicas.
	Put(ctx context.Context, data []byte) (compute.Hash, error)
	// Get returns the data with a hash.
	Get(ctx context.Context, hash compute.Hash) ([]byte, error)
}

// Archives reads executions that have left the state.
type Archives interface {
	// Open returns the content of an archive from any node that has its blob.
	// The error's code is unavailable if none can be read.
	Open(ctx context.Context, a *fsm.Archive) (*fsm.ArchiveFile, error)
}

// Config has the settings of a Server and the parts of the node that it uses.
type Config struct {
	// Relay forwards requests, on a node without a replica. The fields for
	// reading and changing the state are not needed there.
	Relay Relay

	Proposer Proposer
	Reader   Reader
	Logs     Logs
	Blobs    Blobs
	Archives Archives

	// Judge returns the verdict of a GPU selection.
	Judge func(compute.Objective, []compute.Candidate) compute.Verdict
	// Explain returns why an execution waits and when it may start. With moves
	// it also searches for executions that could be moved for it.
	Explain func(ctx context.Context, view *fsm.View, id compute.ExecutionID, moves bool) (compute.Explanation, error)
	// Chart draws the result of a GPU selection as SVG.
	Chart func(compute.Objective, []compute.Candidate, compute.Verdict) ([]byte, error)
	// Replay recomputes the plans of an entry, with the best nodes for each
	// execution. Nil if not available.
	Replay func(ctx context.Context, index uint64, best int) ([]compute.Replay, error)
	// WhatIf returns what the scheduler would do on other nodes, with the state
	// after an index or, for 0, with view. It makes the question from that
	// state and returns the state too. Nil if not available.
	WhatIf func(ctx context.Context, view *fsm.View, index uint64, question func(*fsm.View) (compute.WhatIf, error),
	) (compute.Forecast, *fsm.View, error)
	// Unseal returns the private half of a signing key.
	Unseal func(compute.SigningKey) (ed25519.PrivateKey, error)
	// NewJoinToken makes a join token: its text, and its record for the state.
	NewJoinToken func(role compute.Role, ttl time.Duration, uses int) (string, compute.JoinToken, error)
	// Peers returns the Raft configuration.
	Peers func(ctx context.Context) ([]wire.Peer, error)
	// Clocks returns how far the clocks of nodes are ahead of the cluster's
	// time, where known. Nil if not available.
	Clocks func(ctx context.Context) map[compute.NodeID]time.Duration
	// CheckRemoval refuses the removal of a node that would cost the cluster
	// its quorum. Nil allows every removal.
	CheckRemoval func(ctx context.Context, id compute.NodeID) error
	// CheckCopies refuses the removal of a node while others still copy data
	// that only it may have, and returns the nodes whose copies it relies on.
	// Nil allows every removal.
	CheckCopies func(ctx context.Context, id compute.NodeID) (beside []compute.NodeID, err error)
	// Transfer hands leadership to the named server, or the most up-to-date
	// one, and returns it. Nil if not available.
	Transfer func(ctx context.Context, to compute.NodeID) (compute.NodeID, error)
	// Ready returns why the node cannot serve yet. Nil for always ready.
	Ready func() error

	StreamKey  []byte // Makes stream tokens; the same on every node.
	RefreshKey []byte // Makes refresh tokens' successors and hashes of requests; the same on every node.

	AccessTTL  time.Duration // Of access tokens; 15 minutes when zero.
	RefreshTTL time.Duration // Of refresh tokens; 30 days when zero.

	// PasswordCost is the cost of hashing a new password;
	// auth.DefaultPasswordCost if zero.
	PasswordCost auth.PasswordCost

	// PublicURL is the base of URLs in answers. Empty for the URL that the
	// client used.
	PublicURL string
	TLS       *tls.Config // Nil for plain HTTP.
	Limits    Limits      // Zero fields are DefaultLimits'.

	// MetricsToken is the bearer token that a scraper must send. Empty for
	// none.
	MetricsToken string

	Version string
	Build   string

	// Now returns the wall-clock time, for credentials and identifiers.
	// Stopwatch is monotonic, for durations. Both are time.Now if nil.
	Now, Stopwatch func() time.Time

	Rand       io.Reader // crypto/rand when nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer // Nil where /metrics is served elsewhere: it is not found here.
}

// Limits bound the load that clients can put on a node. The operator may change
// them.
type Limits struct {
	StartBody  int // Bytes of a start body.
	Body       int // Bytes of any other body, of a caller with a credential.
	Bodies     int // Bytes of bodies over InlineBody that the node holds at once.
	Conns      int // Connections at once.
	ConnsPerIP int // Connections at once from one address.
	Streams    int // Output streams and held answers at once.

	Rate       float64 // Requests per second of one key or user.
	Burst      int
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
		Conns: 8192, ConnsPerIP: 2048, Streams: 2048,
		Rate: 50_000, Burst: 100_000,
		AnonRate: 50, AnonBurst: 500,
		LoginRate: 5, LoginBurst: 10,
		ReadTimeout: 10 * time.Second, LastLines: 15 * time.Second, StaleAuthMax: 10 * time.Minute,
	}
}

// withDefaults returns l with the default for each field that is zero.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
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
		{&l.Burst, d.Burst},
		{&l.AnonBurst, d.AnonBurst},
		{&l.LoginBurst, d.LoginBurst},
	} {
		if *f.value == 0 {
			*f.value = f.other
		}
	}
	for _, f := range []struct {
		value *float64
		other float64
	}{{&l.Rate, d.Rate}, {&l.AnonRate, d.AnonRate}, {&l.LoginRate, d.LoginRate}} {
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
