package executor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/boottime"
	"berth/compute"
)

// Source provides the node's live attempts. Work blocks until they change after
// the index, or ctx ends, and returns all of them.
type Source interface {
	Work(ctx context.Context, after uint64) (Assigned, error)
}

// Assigned is the set of live attempts of a node in one state.
type Assigned struct {
	Work  []compute.Work
	Index uint64 // Index of the state.
	Life  uint64 // The state's epoch of the cluster. Indexes may have decreased at its beginning.

	// Contact is the boottime of a contact with the leader at which every attempt
	// in Work was still assigned. The leases of new attempts count from it. While
	// it is 0 no attempt starts: the assignments may be old, and the leader may
	// not have heard from this node since.
	Contact time.Duration
}

// Reporter reports starts, readiness and ends of attempts to the state. A refusal with
// compute.CodeConflict or compute.CodeNotFound is final. After any other error the
// call is retried.
type Reporter interface {
	StartAttempt(ctx context.Context, start compute.AttemptStart) error
	FinishAttempt(ctx context.Context, outcome compute.Outcome) error
	SetReady(ctx context.Context, readiness compute.Readiness) error
}

// Bundles provides the bundles of executions. compute.CodeNotFound means that no
// node has the bundle.
type Bundles interface {
	Bundle(ctx context.Context, ref compute.BundleRef) (*compute.Bundle, error)
}

// Blobs reads the files of executions, and stores what they leave. The codes of
// its errors are those of package storage.
type Blobs interface {
	// Get returns a manifest, or a chunk that it names.
	Get(ctx context.Context, hash compute.Hash) ([]byte, error)
	// Put returns once data is durable.
	Put(ctx context.Context, data []byte) (compute.Hash, error)
}

// Variables returns the variables that the user of a live attempt keeps for all
// own executions.
type Variables func(ctx context.Context, w compute.Work) ([]compute.EnvVariable, error)

// Meter measures how attempts use their GPUs. Its methods are safe for
// concurrent use and return within a second or two.
type Meter interface {
	// Watch starts measuring an attempt whose code started at from. Each node
	// process calls it at most once per attempt, so it is called again after a
	// restart of the node.
	Watch(w compute.Work, from compute.Instant)
	// Measure stops measuring, and adds the measurements to the outcome's
	// usage if the code ran. It is called once for each attempt, watched or
	// not.
	Measure(outcome *compute.Outcome)
}

// Mount is a directory of the machine that executions may ask for as a volume.
type Mount struct {
	Name     string
	Path     string // On the machine; absolute.
	ReadOnly bool
	Always   bool // Executions have it as /mnt/NAME without asking.
}

// Config has the settings of an Executor. DataDir, Node and the three
// interfaces of Open are required; everything else has a default.
type Config struct {
	DataDir       string
	Node          compute.NodeID
	Python        string               // The interpreter; "" for the machine's python3.
	Packages      Packages             // How the packages are installed that executions ask for.
	SiteDirs      []string             // Added to the module path of executions, read-only.
	Mounts        []Mount              // Volumes of this node.
	Variables     Variables            // Reads the variables of users; nil for none.
	Containers    Containers           // How containers are executed.
	Credentials   Credentials          // For registries of images; nil for none.
	Storage       Storage              // How buckets are mounted.
	Models        Models               // Starts engines of models; nil for none.
	Network       compute.Network      // NetworkNone: no execution on this node gets a network.
	ScratchMiB    int64                // Size of the scratch space; 0 for half the memory limit, in memory.
	ScratchMemory bool                 // Scratch space is in memory, inside the memory limit.
	DenyCIDRs     []netip.Prefix       // The cluster's own addresses. See Deny.
	Contact       func() time.Duration // Boottime of the last contact with the leader; 0 before the first, nil for always.
	StopGrace     time.Duration        // Between SIGTERM and SIGKILL; 0 for DefaultStopGrace.
	ProbeEvery    time.Duration        // Between readiness probes; 0 for supervise.ProbeEvery.
	Requests      Requests             // Ends requests to replicas that are to stop; nil for none.
	DrainWait     time.Duration        // The longest time that a replica waits for the end of its requests.
	HostCPUs      int                  // 0 for all of the machine.
	HostMemoryMiB int64                // 0 for all of the machine.
	Meter         Meter                // Measures GPUs; nil for none.

	// Printing is called with each attempt that begins here or is adopted, before its
	// code prints; nil for none. It returns at once.
	Printing func(compute.ExecutionID, uint64)
	// Retain says how long the output of ended attempts is kept; zero for the defaults.
	Retain Retain
	// Archive archives the output of an ended attempt before it is removed, and reports
	// true once it may be. Nil removes output that is not archived.
	Archive func(ctx context.Context, execution compute.ExecutionID, epoch uint64) (bool, error)

	Blobs      Blobs // Nil: executions have no uploaded files, and their outputs are not kept.
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil for none.
	Now        func() time.Time      // nil for time.Now.
}

// DefaultStopGrace is the time between SIGTERM and SIGKILL.
const DefaultStopGrace = 10 * time.Second

// setDefaults sets the defaults of unset fields and checks the rest.
func (c *Config) setDefaults() error {
	if c.DataDir == "" || c.Node.IsZero() {
		return errors.New("no data directory or no node id")
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return err
	}
	c.DataDir = dir
	cpus, memoryMiB, err := machine()
	if err != nil {
		return err
	}
	c.HostCPUs = cmp.Or(c.HostCPUs, cpus)
	c.HostMemoryMiB = cmp.Or(c.HostMemoryMiB, memoryMiB)
	c.StopGrace = cmp.Or(c.StopGrace, DefaultStopGrace)
	c.Retain.Age = cmp.Or(c.Retain.Age, DefaultRetainAge)
	c.Retain.Bytes = cmp.Or(c.Retain.Bytes, DefaultRetainBytes)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Contact == nil {
		c.Contact = boottime.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c.checkPaths()
}

// checkPaths refuses directories that cannot be mounted as configured.
func (c *Config) checkPaths() error {
	for _, dir := range c.SiteDirs {
		if info, err := os.Stat(dir); err != nil || !filepath.IsAbs(dir) || !info.IsDir() || dir == "/" {
			return compute.Errorf(compute.CodeInvalid, "site directory %q is not an absolute path of a directory", dir)
		}
	}
	for _, m := range c.Mounts {
		if _, err := os.Stat(m.Path); err != nil || !filepath.IsAbs(m.Path) || filepath.Clean(m.Path) == "/" {
			return compute.Errorf(compute.CodeInvalid, "mount %q: %q is not an absolute path that exists", m.Name, m.Path)
		}
		if m.Name == "" || m.Name == ".." || m.Name == "." || strings.ContainsAny(m.Name, "/\x00") {
			return compute.Errorf(compute.CodeInvalid, "mount name %q is not one plain name", m.Name)
		}
	}
	return nil
}
