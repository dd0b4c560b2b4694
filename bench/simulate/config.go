package simulate

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Limits of a simulation.
const (
	MaxNodes         = 20_000 // The limit of the state machine.
	MaxExecutions    = 100_000_000
	MaxOrganizations = 1_000
	leastOutage      = time.Hour // Mean time between two failures of a node.
)

// Config configures a simulation.
type Config struct {
	Nodes         string        // A number of synthetic nodes, or a CSV file of nodes.
	Executions    int           // How many to submit.
	Trace         string        // A CSV file of pods to submit; "" for the synthetic mix.
	Load          float64       // Requested GPUs as a share of the fleet's; 0 for the trace's own times.
	Organizations int           // Share the work unevenly, unless the trace names organizations.
	Seed          uint64        // Seed of all randomness.
	Round         time.Duration // Virtual time between two scheduler passes.
	Estimates     time.Duration // Virtual time between two start estimates; 0 for none.

	Preemptible float64       // Share of the work of priority 0 that is preemptible.
	Failures    time.Duration // Mean time between two failures of a node; 0 for none.
	Drains      time.Duration // Mean time between two drains of a node; 0 for none.
	Repair      time.Duration // Mean time that a node is away.

	Now      func() time.Time // Wall clock, to measure the cost of the simulation.
	Progress func(done, all int, what string)
}

// validate returns an error that lists the invalid fields of c.
func (c *Config) validate() error {
	switch {
	case c.Executions < 1 || c.Executions > MaxExecutions:
		return fmt.Errorf("%d executions; 1 to %d", c.Executions, MaxExecutions)
	case c.Organizations < 1 || c.Organizations > MaxOrganizations:
		return fmt.Errorf("%d organizations; 1 to %d", c.Organizations, MaxOrganizations)
	case !(c.Load >= 0 && c.Load <= 10):
		return fmt.Errorf("a load of %g; it is a share of the GPUs, as 0.95", c.Load)
	case c.Load == 0 && c.Trace == "":
		return errors.New("a load of 0 keeps the times of a trace, and the synthetic mix has none; as 0.95")
	case c.Round < time.Millisecond || c.Round > time.Minute:
		return fmt.Errorf("rounds of %v; 1ms to 1m", c.Round)
	case c.Estimates < 0:
		return fmt.Errorf("estimates every %v; as 10s, or 0 for none", c.Estimates)
	case !(c.Preemptible >= 0 && c.Preemptible <= 1):
		return fmt.Errorf("%g of the work is preemptible; it is a share, as 0.5", c.Preemptible)
	case c.Failures != 0 && c.Failures < leastOutage || c.Drains != 0 && c.Drains < leastOutage:
		return fmt.Errorf("a node fails every %v and is drained every %v; at least %v, or 0 for never",
			c.Failures, c.Drains, leastOutage)
	case (c.Failures > 0 || c.Drains > 0) && (c.Repair < time.Second || c.Repair > longest):
		return fmt.Errorf("nodes are away for %v; 1s to %v", c.Repair, longest)
	case c.Nodes == "":
		return errors.New("no nodes: a number of them, or a CSV file")
	}
	if n, err := strconv.Atoi(c.Nodes); err == nil && (n < 1 || n > MaxNodes) {
		return fmt.Errorf("%d nodes; 1 to %d", n, MaxNodes)
	}
	return nil
}
