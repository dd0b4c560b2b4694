package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"berth/cluster/disk"
	"berth/cluster/replica"
	"berth/compute"
)

// Profiles of Raft's timers.
const (
	ProfileAuto    = "auto"    // One of the others, by the speed of the disk and the network at the start.
	ProfileLAN     = "lan"     // Fails over in about a second; for one fast network.
	ProfileDefault = "default" // The library's timers, for other networks.
)

// Limits of a node's description. Together they keep the gossip meta data under
// memberlist's 512 bytes, above which it panics.
const (
	maxNameLength    = 64
	maxURLLength     = 112
	maxAddressLength = 64
	maxVersionLength = 32
)

// Config configures a node of a cluster.
type Config struct {
	DataDir string         // Holds all files of the node; created with mode 0700.
	NodeID  compute.NodeID // Zero to use the one on disk, or to create one.
	Name    string         // For humans; unique by convention.
	Role    compute.Role   // The role to join with: a worker has no replica and speaks no raft.

	Listen       string // host:port for raft/1 and rpc/1.
	GossipListen string // host:port, TCP and UDP.
	Advertise    string // Host at which others reach the node; "" for that of Listen.
	API          string // Full URL of the API, published to the others.
	Metrics      string // Full URL of /metrics, published to the others.
	Version      string // Version of the binary.
	Format       uint64 // Newest state format that the binary knows.

	// A new node either bootstraps a cluster or joins one. An existing member
	// ignores both settings.
	Bootstrap bool
	JoinHosts []string // host:port of servers, tried in turn.
	JoinToken string

	Voters       int           // Number of voters; 0 for 3, and 5 from seven servers on.
	Profile      string        // ProfileAuto, ProfileLAN or ProfileDefault; "" for ProfileLAN.
	PromoteAfter time.Duration // How long a server must have kept up before it votes; 0 for 10 s.
	// ReplaceAfter is how long a voter must have been silent before a server
	// that keeps up replaces it as a voter; 0 for 10 min.
	ReplaceAfter time.Duration
	// RejoinFor is how long a server with a damaged replica asks the others to
	// remove its vote before it gives up; 0 for a minute.
	RejoinFor time.Duration
	// ScrubEvery is the interval of verifying the checksums of the replica on
	// disk; not above 0 for never.
	ScrubEvery time.Duration

	// Ballast is the number of bytes reserved for a full disk; 0 for a
	// twentieth of the file system, at most 256 MiB, and below 0 for none.
	Ballast int64
	// AllowedOnFullDisk reports whether a command may be committed on a full
	// disk, because it frees space or ends something; nil for all commands.
	AllowedOnFullDisk func(frame []byte) bool

	// FSM is the state machine, nil on a worker. Apply returns a [][]byte for
	// an entry: one result for each frame, in order. An entry may have no
	// frame. Restore must refuse data that differs from what Persist wrote:
	// nothing else checks a snapshot's content when the node starts.
	FSM raft.FSM
	// StateCluster returns the cluster that the state belongs to, zero if the
	// state does not contain it. The state of another cluster is refused. Nil
	// if the state machine does not know.
	StateCluster func() compute.UUID
	// CheckState verifies the state in memory against its stored hashes, and
	// calls throttle every few bytes. Any error but that of throttle means that
	// they differ. Nil if the state machine cannot check.
	CheckState func(throttle func(bytes int) error) error
	// StateMarks returns hashes of the state after entries at which every
	// replica takes one, newest last; nil for none. They are used to compare
	// replicas.
	StateMarks func() []replica.StateMark
	// Preamble, if set, returns a frame that the leader of the term puts before
	// each entry; its result is dropped. at is the cluster's time, zero while
	// the leader does not know it.
	Preamble func(term uint64, at time.Time) []byte
	// StateTime returns the state's time, a lower bound of the cluster's; zero
	// for none. Nil if the state machine has no time.
	StateTime func() time.Time

	Registry  Registry  // Decides who may join; nil on a worker.
	Directory Directory // Knows removed nodes; nil for none.

	// ServerSecrets returns the secrets that a joining server gets besides the
	// authority's key; nil for none. The joining server passes them to Accept
	// before it becomes a member.
	ServerSecrets func() []byte
	Accept        func(cluster compute.UUID, serverSecrets []byte) error

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time // nil for time.Now.
	Rand       io.Reader        // nil for crypto/rand. Used from any goroutine.

	// Dial opens the TCP connections to other nodes; nil for net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Fatal is called once, from any goroutine, when the process must end
	// because its disk hangs or is corrupt. It should not return.
	Fatal func(error)

	wrapStore     func(raft.LogStore) raft.LogStore // Tests put a faulty disk under the log.
	electionAfter time.Duration                     // Overrides the profile, for tests.
	commitAfter   time.Duration                     // Raft's CommitTimeout; 0 for the usual one. For tests.
	freeSpace     func(dir string) (free, total int64, err error)
}

// Registry admits new nodes. Only the leader calls it.
type Registry interface {
	// Admit consumes one use of the token and records the node, in one step. A
	// repeat by the same node with the same token and key succeeds without
	// another use, because answers can be lost. A refusal is a *compute.Error
	// whose message gives the reason; the joining node prints it.
	Admit(ctx context.Context, a Admission) error
}

// Admission is a node that asks to join, and its token.
type Admission struct {
	TokenID    string       // The ten characters after "bjt_".
	SecretHash compute.Hash // SHA-256 of the secret part.
	Node       compute.Node // The node's own description: ID, Name, Role, addresses, Version.
	Key        compute.Hash // SHA-256 of the public key to certify.
}

// Directory returns the state's record of a node.
type Directory interface {
	// Node returns the node's role, whether it was removed, and whether the
	// state knows it.
	Node(id compute.NodeID) (role compute.Role, removed, known bool)
	// Address returns the last RPC address that the node reported, or "".
	Address(id compute.NodeID) string
}

// everyone is the Directory of a cluster without one.
type everyone struct{}

func (everyone) Node(compute.NodeID) (compute.Role, bool, bool) {
	return compute.RoleServer, false, true
}

func (everyone) Address(compute.NodeID) string { return "" }

// withDefaults fills in omitted fields.
func (c Config) withDefaults() Config {
	if c.Profile == "" {
		c.Profile = ProfileLAN
	}
	if c.PromoteAfter == 0 {
		c.PromoteAfter = 10 * time.Second
	}
	if c.ReplaceAfter == 0 {
		c.ReplaceAfter = 10 * time.Minute
	}
	if c.RejoinFor == 0 {
		c.RejoinFor = rejoinFor
	}
	if c.StateTime == nil {
		c.StateTime = func() time.Time { return time.Time{} }
	}
	if c.Directory == nil {
		c.Directory = everyone{}
	}
	if c.ServerSecrets == nil {
		c.ServerSecrets = func() []byte { return nil }
	}
	if c.Accept == nil {
		c.Accept = func(compute.UUID, []byte) error { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.AllowedOnFullDisk == nil {
		c.AllowedOnFullDisk = func([]byte) bool { return true }
	}
	if c.freeSpace == nil {
		c.freeSpace = disk.Free
	}
	if c.wrapStore == nil {
		c.wrapStore = func(s raft.LogStore) raft.LogStore { return s }
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	return c
}

// validate reports all invalid fields at once.
func (c Config) validate() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, compute.Errorf(compute.CodeInvalid, format, args...))
		}
	}
	fault(c.DataDir == "", "The data directory is not set.")
	worker := c.Role == compute.RoleWorker
	fault(c.FSM == nil && !worker, "The state machine is not set.")
	fault(c.Registry == nil && !worker, "The registry is not set.")
	fault(c.Fatal == nil, "Fatal is not set.")
	fault(c.Role != compute.RoleServer && !worker, "There is no such role of a node.")
	fault(c.Bootstrap && worker, "A worker cannot make a cluster: have a server make it, and the worker join.")
	fault(!slices.Contains([]string{ProfileAuto, ProfileLAN, ProfileDefault}, c.Profile),
		"Unknown raft profile %q: use %q, %q or %q.", c.Profile, ProfileAuto, ProfileLAN, ProfileDefault)
	fault(c.Voters < 0, "The number of voters is negative.")
	fault(c.Bootstrap && c.JoinToken != "",
		"A node either makes a cluster or joins one: bootstrap and a join token exclude each other.")
	fault(c.JoinToken != "" && len(c.JoinHosts) == 0, "A join token needs the address of a server to join.")
	for _, text := range []struct {
		what, value string
		limit       int
	}{
		{"name", c.Name, maxNameLength},
		{"API URL", c.API, maxURLLength},
		{"metrics URL", c.Metrics, maxURLLength},
		{"advertised host", c.Advertise, maxAddressLength - len(":65535")},
		{"version", c.Version, maxVersionLength},
	} {
		fault(len(text.value) > text.limit, "The %s is longer than %d bytes.", text.what, text.limit)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("configure cluster: %w", err)
	}
	return nil
}
