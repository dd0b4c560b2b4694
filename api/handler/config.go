package handler

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/api/edge"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

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

// LogQuery says which lines of an execution are wanted.
type LogQuery struct {
	Since compute.Instant // Written at or after.
	Level string          // At least: debug, info, warning or error; "" for any.
	Text  string          // Contained in the line, letters of either case.
	Limit int             // The newest so many.
}

// LogLines answers a LogQuery.
type LogLines struct {
	Lines   []LogLine // In the order of writing.
	Total   int       // How many match, those beyond the limit included.
	Missing string    // Why lines may be missing; "" if none is.
}

// LogLine is a line of output with its level and the attempt that wrote it.
type LogLine struct {
	Line
	Level   string
	Attempt uint64
}

// Logs reads what executions wrote, wherever that is kept.
type Logs interface {
	// Follow calls fn with the lines after the sequence number, in order,
	// without gap or repeat, until the output is complete, fn returns an error
	// or ctx ends. fn may not keep the lines.
	Follow(ctx context.Context, id compute.ExecutionID, after uint64, fn func([]Line) error) error
	// Here reports whether Tail reads the output of an execution on this node.
	Here(id compute.ExecutionID) bool
	// Tail returns the last maxBytes of each stream.
	Tail(ctx context.Context, id compute.ExecutionID, maxBytes int) (Output, error)
	// Search returns lines of an execution where they are kept.
	Search(ctx context.Context, id compute.ExecutionID, q LogQuery) (LogLines, error)
	// Delete removes all output of a terminal execution.
	Delete(ctx context.Context, id compute.ExecutionID) error
}

// Blobs keeps bundles that are too large for a command.
type Blobs interface {
	// Put returns once data is durable on as many nodes as storage.replicas.
	Put(ctx context.Context, data []byte) (compute.Hash, error)
	// Has reports whether this node has the data with a hash.
	Has(hash compute.Hash) bool
	// Get returns the data with a hash.
	Get(ctx context.Context, hash compute.Hash) ([]byte, error)
}

// Backoff has the times of the crash back-off of services.
type Backoff struct{ First, Most, Reset time.Duration }

// Trees reads manifests. Its results are shared and must not be changed.
type Trees interface {
	Tree(ctx context.Context, manifest compute.Hash) (*compute.Tree, error)
	// Numbers returns the numbers of the chunks of a tree.
	Numbers(ctx context.Context, manifest compute.Hash) (map[compute.Hash]int, error)
}

// Config has the settings of the API and the parts of the node that it uses. On a
// node without a replica, which relays, only the settings of the server are
// needed.
type Config struct {
	edge.Config // Settings of the server and of all requests.

	Backoff   Backoff // For replicas of services.
	Inference Inference

	Logs   Logs
	Series Series
	Blobs  Blobs
	Trees  Trees
	Vault  Vault
	Master MasterKey // Nil on a node without it.

	Objects Objects
	// S3 makes credentials of S3 with the rights of an actor; session is the actor's
	// login, if there is one, and key the hash of the actor's key. The client has reached the
	// API at base, by way of another node if the request is handed on.
	S3 func(
		actor command.Actor, session compute.UUID, key compute.Hash, base string, handedOn bool,
	) (wire.StorageCredentials, error)

	// Migrate copies stored files to where new ones are kept, if start says so, and
	// returns how far it is.
	Migrate func(ctx context.Context, start bool) (wire.StorageMigration, error)

	Accounts Accounts
	Payments Payments // Nil without a payment provider.

	BundleMax int64 // Bytes of the files of one uploaded bundle.

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
	// WhatIf returns how the scheduler would decide on other nodes, with the
	// state after an index or, for 0, with view. It makes the question from
	// that state and returns the state too. Nil if not available.
	WhatIf func(ctx context.Context, view *fsm.View, index uint64, question func(*fsm.View) (compute.WhatIf, error),
	) (compute.Forecast, *fsm.View, error)
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

	Gatherer prometheus.Gatherer // Nil where /metrics is served elsewhere: it is not found here.
	Version  string
	Build    string
}
