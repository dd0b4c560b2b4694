package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"
)

// Limits of a measurement.
const (
	MaxNodes  = 19_000 // The state's limit is 20,000, including the three peers.
	MaxQueued = 1_000_000
	maxRate   = 100_000

	bareInFlight = 256
	bareEntries  = 20_000
	bareWarmUp   = 10  // One in so many goes before, and is not measured.
	bareTries    = 100 // Tries for one entry.
	bareRetry    = 200 * time.Millisecond
	setupTimeout = 2 * time.Minute
)

// Defaults of a measurement.
const (
	DefaultNodes  = 5_000
	DefaultQueued = 100_000
	DefaultRate   = 1_000
	DefaultSteady = 10 * time.Second
)

// Config configures a measurement.
type Config struct {
	Nodes  int           // Simulated nodes, eight GPUs each.
	Queued int           // Executions queued when the loop starts.
	Rate   int           // Submits per second during the latency measurement.
	Steady time.Duration // Duration of the latency measurement; 0 for none.
	Seed   uint64        // Seed of the order of profiles.
	Dir    string        // Holds the peers' data during the run; "" for a temporary directory.

	Now      func() time.Time                 // Nil for time.Now.
	Logger   *slog.Logger                     // Nil discards.
	Progress func(done, all int, what string) // Nil for none.
}

// Validate reports every invalid field of c.
func (c Config) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(c.Nodes >= 1 && c.Nodes <= MaxNodes, "nodes: %d is not 1 to %d", c.Nodes, MaxNodes)
	check(c.Queued >= 1 && c.Queued <= MaxQueued, "queued: %d is not 1 to %d", c.Queued, MaxQueued)
	check(c.Steady >= 0 && c.Steady <= time.Hour, "steady: %s is not 0s to 1h", c.Steady)
	check(c.Steady == 0 || c.Rate >= 1 && c.Rate <= maxRate, "rate: %d is not 1 to %d", c.Rate, maxRate)
	return errors.Join(faults...)
}

// Report is the result of a measurement. Times are wall time.
type Report struct {
	Nodes     int     `json:"nodes"`
	GPUs      int     `json:"gpus"`
	Peers     int     `json:"peers"`
	Cores     int     `json:"cores"`
	Seed      uint64  `json:"seed"`
	Queued    int     `json:"queued"`
	SubmitsPS float64 `json:"submits_per_s"` // By Propose on the leader, while the queue was filled.

	Placed       int     `json:"placed"`
	Waiting      int     `json:"waiting"` // Queued executions that did not fit.
	Seconds      float64 `json:"seconds"` // From the loop's start to the last plan's commit.
	PlacementsPS float64 `json:"placements_per_s"`
	Plans        int     `json:"plans"`
	FirstPlanMS  float64 `json:"first_plan_ms"`        // From the loop's start to its first commit.
	CommitShare  float64 `json:"commit_share"`         // Share of Seconds during which a plan was being committed.
	CPUMicros    float64 `json:"cpu_us_per_placement"` // CPU time of all peers; independent of other load.
	BareRaftPS   float64 `json:"bare_raft_per_s"`

	Latency *Latency `json:"latency,omitempty"`
	Memory  Memory   `json:"memory"`

	Published []Published `json:"published"`
}

// Latency is the time from the start of a submit to the commit of the plan that
// places it, at a steady rate.
type Latency struct {
	RatePS    float64 `json:"rate_per_s"` // Answered submits per second.
	Samples   int     `json:"samples"`
	Unplaced  int     `json:"unplaced"`
	SubmitP50 float64 `json:"submit_p50_ms"` // Time of the submit alone.
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	Max       float64 `json:"max_ms"`
}

// Memory is the heap cost of one record on one replica, in bytes.
type Memory struct {
	PerNode          int64 `json:"node_bytes"`
	PerQueued        int64 `json:"queued_execution_bytes"`
	SchedulerPerNode int64 `json:"scheduler_node_bytes"` // The packer's additional cost on the leader.

	// SchedulerPerQueued is the same for an execution, with its part of the scores.
	SchedulerPerQueued int64 `json:"scheduler_queued_execution_bytes"`
}

// Published is a published figure of another system.
type Published struct {
	System       string  `json:"system"`
	PlacementsPS float64 `json:"placements_per_s"`
}

// published returns the published figures of other systems.
func published() []Published {
	return []Published{{"CraneSched", 10_600}, {"Gödel", 5_000}, {"Nomad C2M", 1_500}}
}

// BareRaft returns how many entries a second three peers of this machine commit with
// Raft alone.
func BareRaft(ctx context.Context) (perSecond float64, err error) {
	cfg := Config{Nodes: 1}.withDefaults()
	if cfg.Dir, err = os.MkdirTemp("", "berth-bench-"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(cfg.Dir)) }()
	f, err := openFleet(ctx, cfg)
	if err != nil {
		return 0, fmt.Errorf("start peers: %w", err)
	}
	defer func() { err = errors.Join(err, f.close()) }()
	var r Report
	err = bare(ctx, f, &r)
	return r.BareRaftPS, err
}

// withDefaults returns cfg with functions that do nothing in place of nil ones.
func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Progress == nil {
		c.Progress = func(int, int, string) {}
	}
	return c
}

// Run runs a measurement.
func Run(ctx context.Context, cfg Config) (_ Report, err error) {
	if err := cfg.Validate(); err != nil {
		return Report{}, err
	}
	cfg = cfg.withDefaults()
	if cfg.Dir == "" {
		if cfg.Dir, err = os.MkdirTemp("", "berth-bench-"); err != nil {
			return Report{}, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(cfg.Dir)) }()
	}
	r := Report{
		Nodes: cfg.Nodes, GPUs: cfg.Nodes * gpusPerNode, Peers: peers, Cores: runtime.GOMAXPROCS(0),
		Seed: cfg.Seed, Queued: cfg.Queued, Published: published(),
	}
	const steps = 6
	cfg.Progress(0, steps, "memory of records")
	if r.Memory, err = measureMemory(ctx, cfg); err != nil {
		return r, fmt.Errorf("measure memory: %w", err)
	}
	cfg.Progress(1, steps, "three peers")
	f, err := openFleet(ctx, cfg)
	if err != nil {
		return r, fmt.Errorf("start peers: %w", err)
	}
	defer func() { err = errors.Join(err, f.close()) }()
	for i, step := range []struct {
		what string
		do   func(context.Context, *fleet, *Report) error
	}{
		{"bare raft", bare}, {"nodes and queue", fill}, {"placements", place}, {"latency", steady},
	} {
		cfg.Progress(i+2, steps, step.what)
		if err := step.do(ctx, f, &r); err != nil {
			return r, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return r, nil
}
