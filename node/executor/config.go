package executor

import (
	"cmp"
	"context"
	"time"

	"berth/boottime"
	"berth/compute"
	"berth/node/executor/prepare"
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

// Config has the settings of an Executor: those of how attempts are prepared, and its own, which
// all have defaults.
type Config struct {
	prepare.Config

	Contact   func() time.Duration // Boottime of the last contact with the leader; 0 before the first, nil for always.
	Requests  Requests             // Ends requests to replicas that are to stop; nil for none.
	DrainWait time.Duration        // The longest time that a replica waits for the end of its requests.
	Meter     Meter                // Measures GPUs; nil for none.

	// Printing is called with each attempt that begins here or is adopted, before its
	// code prints; nil for none. It returns at once.
	Printing func(compute.ExecutionID, uint64)
	// Retain says how long the output of ended attempts is kept; zero for the defaults.
	Retain Retain
	// Archive archives the output of an ended attempt before it is removed, and reports
	// true once it may be. Nil removes output that is not archived.
	Archive func(ctx context.Context, execution compute.ExecutionID, epoch uint64) (bool, error)
}

// setDefaults sets the defaults of unset fields and checks the rest.
func (c *Config) setDefaults() error {
	if err := c.Config.SetDefaults(); err != nil {
		return err
	}
	c.Logger = c.Logger.With("part", "executor")
	c.Retain.Age = cmp.Or(c.Retain.Age, DefaultRetainAge)
	c.Retain.Bytes = cmp.Or(c.Retain.Bytes, DefaultRetainBytes)
	if c.Contact == nil {
		c.Contact = boottime.Now
	}
	return nil
}
