package executor

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"berth/compute"

	"github.com/prometheus/client_golang/prometheus"
)

// Source is where the node's live attempts come from. Work blocks until they
// changed after index after, or ctx ended, and returns all of them with the
// index of the state that they were read from.
type Source interface {
	Work(ctx context.Context, after uint64) (work []compute.Work, index uint64, err error)
}

// Reporter takes the node's word on its attempts to the state. A refusal with
// compute.CodeConflict or compute.CodeNotFound is final; after any other error
// the call is repeated.
type Reporter interface {
	StartAttempt(ctx context.Context, start compute.AttemptStart) error
	FinishAttempt(ctx context.Context, outcome compute.Outcome) error
}

// Bundles returns what an execution executes. compute.CodeNotFound means that
// no node has it any more.
type Bundles interface {
	Bundle(ctx context.Context, ref compute.BundleRef) (*compute.Bundle, error)
}

// Mount is a directory of the machine that the operator shows to executions.
type Mount struct {
	Name     string // Where executions see it: /mnt/<name>.
	Path     string // On the machine; absolute.
	ReadOnly bool
}

// Config is what an Executor needs. DataDir, Node and the three interfaces of
// Open are required; everything else has a default.
type Config struct {
	DataDir       string
	Node          compute.NodeID
	Python        string           // The interpreter; "" for the machine's python3.
	SiteDirs      []string         // Added to the module path of executions, read-only.
	Mounts        []Mount          // Shown to executions.
	Network       compute.Network  // NetworkNone: no execution on this node gets a network.
	ScratchMiB    int64            // Of /work, /tmp and /dev/shm together; 0 for half the memory limit.
	DenyCIDRs     []netip.Prefix   // The cluster's own addresses.
	Contact       func() time.Time // The last confirmed contact with the leader; nil for always.
	StopGrace     time.Duration    // Between SIGTERM and SIGKILL; 0 for DefaultStopGrace.
	HostCPUs      int              // 0 for what the machine has.
	HostMemoryMiB int64            // 0 for what the machine has.
	Logger        *slog.Logger
	Registerer    prometheus.Registerer // nil for none.
	Now           func() time.Time      // nil for time.Now.
}

// DefaultStopGrace is the time between SIGTERM and SIGKILL.
const DefaultStopGrace = 10 * time.Second

// Executor lives the attempts of one node. Its methods may be called once
// each, Run from one goroutine.
type Executor struct{}

// Open checks the machine (namespaces, cgroups, interpreter), makes the
// directories, removes what ended attempts left behind and returns an Executor
// that starts nothing yet.
func Open(cfg Config, source Source, reporter Reporter, bundles Bundles) (*Executor, error) {
	return nil, errors.New("open executor: not on this system")
}

// Run adopts the attempts whose supervisors still live, ends the others from
// their journals, and starts and stops attempts as the Source says until ctx
// ends. Attempts live on after it.
func (e *Executor) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Close releases what Open acquired. Attempts live on.
func (e *Executor) Close() error { return nil }
