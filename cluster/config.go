package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"berth/cluster/disk"
	"berth/cluster/replica"
	"berth/compute"
)

// The profiles of Raft's timers.
const (
	ProfileLAN     = "lan"     // Fails over in about a second; for one fast network.
	ProfileDefault = "default" // The library's timers, for everything else.
)

// Limits of what a node says about itself. Together they keep the gossip meta
// under memberlist's 512 bytes, over which it panics.
const (
	maxNameLength    = 64
	maxURLLength     = 112
	maxAddressLength = 64
	maxVersionLength = 32
)

// Config is what a node needs to take its place in a cluster.
type Config struct {
	DataDir string         // Holds everything of the node; made with mode 0700.
	NodeID  compute.NodeID // Zero to keep the one on disk, or to make one.
	Name    string         // For people; unique by convention.
	Role    compute.Role   // What the node joins as: a worker has no replica and speaks no raft.

	Listen       string // host:port for raft/1 and rpc/1.
	GossipListen string // host:port, TCP and UDP.
	Advertise    string // Host under which others reach the node; "" for the one it listens on.
	API          string // Full URL of the API, published to the others.
	Metrics      string // Full URL of /metrics, published to the others.
	Version      string // Of the binary.
	Format       uint64 // Newest format of the state that the binary knows.

	// A node that is new either makes the cluster or joins one. On a node
	// that is a member already these are ignored.
	Bootstrap bool
	JoinHosts []string // host:port of servers, tried in turn.
	JoinToken string

	Voters       int           // How many servers vote; 0 for 3, and 5 from seven servers on.
	Profile      string        // ProfileLAN or ProfileDefault; "" for ProfileLAN.
	PromoteAfter time.Duration // How long a server must have kept up before it votes; 0 for 10 s.
	// ReplaceAfter is how long a voter must have been silent before a server
	// that keeps up votes in its place; 0 for 10 min.
	ReplaceAfter time.Duration
	// RejoinFor is how long a server whose replica is damaged asks the others to
	// take its vote, before it gives up; 0 for a minute.
	RejoinFor time.Duration
	// ScrubEvery is how often the replica on disk is read against its checksums;
	// never when it is not above 0.
	ScrubEvery time.Duration

	// Ballast is how many bytes are held back for when the disk is full; 0 for
	// a twentieth of the file system, at most 256 MiB, and none below 0.
	Ballast int64
	// Relieves reports whether a command may be committed although the disk is
	// full, because it makes room or ends something; nil for all of them.
	Relieves func(frame []byte) bool

	// FSM is the state machine, nil on a worker. Apply answers an entry with a [][]byte: one
	// result for each frame of the entry, in order. An entry may hold no
	// frame at all. Restore refuses what differs from what Persist wrote:
	// nothing else looks at a snapshot when the node starts.
	FSM raft.FSM
	// StateCluster returns which cluster the state is of by what it holds, zero
	// when it does not say: one that is of another cluster is refused. Nil when the
	// state machine cannot tell.
	StateCluster func() compute.UUID
	// CheckState compares the state in memory with what was stored in it, and
	// waits for pace after every few bytes. An error that is not pace's says that
	// it differs. Nil when the state machine cannot tell.
	CheckState func(pace func(bytes int) error) error
	// StateMarks returns hashes of the state after entries at which every replica
	// takes one, the newest last; nil for none. Replicas are compared by them.
	StateMarks func() []replica.StateMark
	// Preamble, when set, returns a frame that is put in front of each entry
	// by the leader of the term; its result is dropped. At is the cluster's time,
	// zero while the leader does not know it.
	Preamble func(term uint64, at time.Time) []byte
	// StateTime returns the state's time, before which the cluster's never is; zero
	// where there is none. Nil when the state machine has no time.
	StateTime func() time.Time

	Registry  Registry  // Decides who joins; nil on a worker.
	Directory Directory // Tells who was removed; nil for nobody.

	// ServerSecrets returns what a server that joins is handed beside the
	// authority's key; nil for nothing. Accept is given it on the other side,
	// before the node becomes a member.
	ServerSecrets func() []byte
	Accept        func(cluster compute.UUID, serverSecrets []byte) error

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time // nil for time.Now.
	Rand       io.Reader        // nil for crypto/rand. Used from any goroutine.

	// Dial opens the TCP connections to other nodes; nil for net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Fatal is called once, from any goroutine, when the process must end
	// because its disk hangs or lies. It should not return.
	Fatal func(error)

	wrapStore     func(raft.LogStore) raft.LogStore // Tests put a faulty disk under the log.
	electionAfter time.Duration                     // In place of the profile's, for tests.
	freeSpace     func(dir string) (free, total int64, err error)
}

// Registry admits new nodes. It is asked on the leader only.
type Registry interface {
	// Admit consumes one use of the token and records the node, in one step.
	// A repeat by the same node with the same token and key succeeds without
	// another use, because answers can be lost. A refusal is a *compute.Error whose
	// message says why; the node that joins prints it.
	Admit(ctx context.Context, a Admission) error
}

// Admission is a node that asks to join and the token that it shows.
type Admission struct {
	TokenID    string       // The ten characters behind "bjt_".
	SecretHash compute.Hash // SHA-256 of the secret part.
	Node       compute.Node // As the node describes itself: ID, Name, Role, addresses, Version.
	Key        compute.Hash // SHA-256 of the public key for which it asks for a certificate.
}

// Directory tells what the state knows of a node.
type Directory interface {
	// Node returns the node's role, whether it was removed, and whether the
	// state knows it at all.
	Node(id compute.NodeID) (role compute.Role, removed, known bool)
	// Address returns where the node said last that it serves RPC, or "".
	Address(id compute.NodeID) string
}

// everyone is the Directory of a cluster that keeps none.
type everyone struct{}

func (everyone) Node(compute.NodeID) (compute.Role, bool, bool) {
	return compute.RoleServer, false, true
}

func (everyone) Address(compute.NodeID) string { return "" }

// withDefaults fills what was left out.
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
	if c.Relieves == nil {
		c.Relieves = func([]byte) bool { return true }
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

// validate reports all that is wrong at once.
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
	fault(c.Profile != ProfileLAN && c.Profile != ProfileDefault, "Unknown raft profile %q: use %q or %q.",
		c.Profile, ProfileLAN, ProfileDefault)
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
