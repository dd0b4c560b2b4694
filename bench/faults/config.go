package faults

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"berth/bench/faults/world"
)

// Config configures a run.
type Config struct {
	Seed      uint64
	Duration  time.Duration // Duration of faults and load; setup and checks come on top.
	Nodes     int           // Servers, 3 to 9.
	Workers   int           // Worker-only nodes in addition, 0 to 3.
	Nemeses   []string      // Faults to inject; empty for all of Nemeses. Long ones take a run of 4 minutes.
	Workloads []string      // Client workloads; empty for all of Workloads.
	Count     int           // End after so many faults; 0 for no limit but Duration.
	Hold      time.Duration // Duration of each fault; 0 for random.
	Binary    string        // The berth program of the nodes.
	Dir       string        // The run's output directory: the nodes' logs, data and marks.
	Plant     string        // A planted bug; it needs Points.
	Points    bool          // The program was built with failpoints (the tag faults).
	Slow      int           // Multiplies timeouts; 0 is 1.

	Logger   *slog.Logger
	Progress io.Writer // Receives a line per fault; nil for none.
}

// Validate reports every invalid field of c.
func (c Config) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(c.Duration > 0 && c.Duration <= 240*time.Hour, "duration: %v is not up to 240h", c.Duration)
	check(c.Nodes >= 3 && c.Nodes <= 9, "nodes: %d is not 3 to 9", c.Nodes)
	check(c.Workers >= 0 && c.Workers <= world.MaxWorkers, "workers: %d is not 0 to %d", c.Workers, world.MaxWorkers)
	check(c.Count >= 0, "count: %d is negative", c.Count)
	check(c.Hold >= 0 && c.Hold <= c.Duration, "hold: %v is not between 0 and %v, the duration of a run",
		c.Hold, c.Duration)
	check(c.Binary != "" && c.Dir != "", "binary and directory are needed")
	for _, name := range c.Nemeses {
		check(slices.Contains(Nemeses(), name), "no fault %q; there are %s",
			name, strings.Join(Nemeses(), ", "))
	}
	for _, name := range c.Nemeses {
		check(c.Points || !slices.Contains(needPoints(), name),
			"%q needs a program with failpoints: build it with -tags faults and use --points", name)
		check(c.Workers > 0 || !slices.Contains(needWorkers(), name), "%q needs a worker: use --workers 1", name)
	}
	check(c.Points || c.Plant == "", "a planted bug needs a program with failpoints: build it with -tags faults"+
		" and use --points")
	for _, name := range c.Workloads {
		check(slices.Contains(Workloads(), name), "no workload %q; there are %s", name, strings.Join(Workloads(), ", "))
	}
	return errors.Join(faults...)
}

// withDefaults fills in omitted fields.
func (c Config) withDefaults() Config {
	if len(c.Nemeses) == 0 {
		c.Nemeses = slices.DeleteFunc(Nemeses(), c.lacks)
	}
	if len(c.Workloads) == 0 {
		c.Workloads = Workloads()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	c.Slow = max(c.Slow, 1)
	return c
}
