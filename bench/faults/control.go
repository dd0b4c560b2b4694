package faults

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"berth/fault"
)

// Control is a planted bug with the faults and the clients that show it.
type Control struct {
	Bug       fault.Bug
	Nemeses   []string
	Workloads []string
	Duration  time.Duration // Of one try.
	Shows     []string      // As which violation, any of these.
}

// controlTries is how many seeds a planted bug has to be found.
const controlTries = 3

// Controls returns the planted bugs that this harness must find. The others of
// fault.Plants are found by tests of single packages.
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
		{ // Of the first fault there may be too little to lose, so there is another.
			fault.EndlessLease,
			[]string{"long-partition", "long-pause"},
			[]string{"life"},
			75 * time.Second,
			[]string{"overlap"},
		},
	}
}

// Found is what came of one control.
type Found struct {
	Bug    fault.Bug `json:"bug"`
	Seeds  int       `json:"seeds"` // That it took; all of them where it was not found.
	Report Report    `json:"report"`

	shows []string
}

// lostWork is what acknowledged work shows as that is gone.
func lostWork() []string { return []string{"lost", "linearizability", "replicas differ"} }

// Caught reports whether the bug was found: as what it breaks. That a cluster
// was slow to recover, or a search too long, proves nothing.
func (f Found) Caught() bool { return f.By() != "" }

// By returns as what the bug was found: the first violation that counts. It is
// "" where there is none.
func (f Found) By() string {
	for _, v := range f.Report.Violations {
		if slices.Contains(f.shows, v.What) && !v.Undecided {
			return v.What
		}
	}
	return ""
}

// RunControl runs seeds with a planted bug until it is found.
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
