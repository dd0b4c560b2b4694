package simulate

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Limits of a simulation.
const (
	MaxNodes         = 20_000 // As many as the state machine takes.
	MaxExecutions    = 100_000_000
	MaxOrganizations = 1_000
	leastOutage      = time.Hour // Mean time between two of a node.
)

// Config says what to simulate.
type Config struct {
	Nodes         string        // A number of synthetic nodes, or a CSV file of nodes.
	Executions    int           // How many are submitted.
	Trace         string        // A CSV file of pods to submit; "" for the synthetic mix.
	Load          float64       // GPUs asked for, as a share of those there are; 0 for the trace's own times.
	Organizations int           // Among whom the work is divided, unevenly, unless the trace says.
	Seed          uint64        // Of all chance.
	Round         time.Duration // Virtual time between two looks of the scheduler.
	Estimates     time.Duration // Virtual time between two estimates of when the queue starts; 0 for none.

	Preemptible float64       // Which part of the work of priority 0 makes room for higher ones.
	Failures    time.Duration // Mean time between two failures of a node; 0 for none.
	Drains      time.Duration // Mean time between two drains of a node; 0 for none.
	Repair      time.Duration // For how long a node is away, in the mean.

	Now      func() time.Time // The machine's clock, for what the simulation takes.
	Progress func(done, all int, what string)
}

// validate returns what is wrong with c.
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
