package faults

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"berth/fault"
)

// Control is a planted bug with the faults and the clients that expose it.
type Control struct {
	Bug       fault.Bug
	Nemeses   []string
	Workloads []string
	Duration  time.Duration // Duration of one try.
	Shows     []string      // The kinds of violation that count; any of these.
}

// controlTries is the largest number of seeds tried to expose a planted bug.
const controlTries = 3

// Controls returns the planted bugs that this harness must find. Tests of
// single packages find the others of fault.Plants.
func Controls() []Control {
	return []Control{
		{fault.UnsyncedLog, []string{"power-cut"}, []string{"account", "register"}, 30 * time.Second, lostWork()},
		{
			fault.ForgottenOps,
			[]string{"leader-kill", "leader-pause", "partition-leader"},
			[]string{"account", "life"},
			60 * time.Second,
			[]string{"linearizability", "two executions", "ledger"},
		},
		{
			fault.PipelinedLog,
			[]string{"follower-full-log"},
			[]string{"register"},
			120 * time.Second,
			[]string{"stays behind"},
		},
		{
			fault.MapOrder,
			[]string{"follower-kill"},
			[]string{"account", "life", "register"},
			60 * time.Second,
			[]string{"replicas differ"},
		},
		{
			fault.DoubleCharge,
			[]string{"follower-kill"},
			[]string{"life"},
			20 * time.Second,
			[]string{"ledger", "money", "invariant"},
		},
		{
			fault.StaleAuth,
			[]string{"partition-follower", "follower-pause"},
			[]string{"keys"},
			60 * time.Second,
			[]string{"linearizability"},
		},
		{ // The first fault may leave too little to lose, so a second one follows.
			fault.EndlessLease,
			[]string{"long-partition", "long-pause"},
			[]string{"life"},
			75 * time.Second,
			[]string{"overlap"},
		},
	}
}

// Found is the result of one control.
type Found struct {
	Bug    fault.Bug `json:"bug"`
	Seeds  int       `json:"seeds"` // The number of seeds used; all of them if the bug was not found.
	Report Report    `json:"report"`

	shows []string
}

// lostWork returns the violations that lost acknowledged work causes.
func lostWork() []string { return []string{"lost", "linearizability", "replicas differ"} }

// Caught reports whether a counted violation exposed the bug. A slow recovery
// or an exhausted search proves nothing.
func (f Found) Caught() bool { return f.By() != "" }

// By returns the first violation that counts, "" for none.
func (f Found) By() string {
	for _, v := range f.Report.Violations {
		if slices.Contains(f.shows, v.What) && !v.Undecided {
			return v.What
		}
	}
	return ""
}

// RunControl runs seeds with a planted bug until one exposes it.
func RunControl(ctx context.Context, cfg Config, control Control) (Found, error) {
	f := Found{Bug: control.Bug, shows: control.Shows}
	cfg.Plant, cfg.Nemeses, cfg.Workloads = string(control.Bug), control.Nemeses, control.Workloads
	cfg.Duration, cfg.Count = control.Duration, 0
	dir := cfg.Dir
	for f.Seeds < controlTries && !f.Caught() {
		f.Seeds++
		cfg.Dir = filepath.Join(dir, fmt.Sprintf("%s-%d", control.Bug, cfg.Seed))
		report, err := Run(ctx, cfg)
		if err != nil {
			return f, fmt.Errorf("control %s, seed %d: %w", control.Bug, cfg.Seed, err)
		}
		f.Report = report
		cfg.Seed++
	}
	return f, nil
}
