package benchcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"berth/bench/dst"
	"berth/bench/usage"
	"berth/cmd/berth/cli"
)

// dstFlags are the flags of berth bench dst.
type dstFlags struct {
	config     dst.Config
	bug        string
	processor  time.Duration // Processor time to spend.
	jsonOutput bool
}

// dstTotals are the sums over all histories.
type dstTotals struct {
	First            uint64     `json:"first_seed"`
	Histories        int        `json:"histories"`
	Violation        string     `json:"violation,omitempty"`
	FaultHours       float64    `json:"fault_hours"` // Virtual time with faults.
	ProcessorSeconds float64    `json:"processor_s"`
	HoursPerHour     float64    `json:"cluster_hours_per_processor_hour"`
	Sums             dst.Report `json:"sums"` // The seed and the state are those of the last history.
}

// newDST returns the command berth bench dst.
func newDST() *cobra.Command {
	f := &dstFlags{}
	cmd := &cobra.Command{
		Use:   "dst",
		Short: "Simulate a cluster under seeded faults, in one process",
		Long: `Dst (deterministic simulation testing) runs whole clusters in one process under a
virtual clock: the real state machine on three replicas, the real scheduler, the real
journals of attempts, and a model of network, replicated log, machines, disks and
clients. Messages are lost, late, repeated and reordered; nodes are partitioned;
processes, machines and supervisors end; leaders change.

Invariants are checked after each log entry for the records it touches, every 256
entries for all executions and acknowledged requests, and every 2,048 entries for the
whole state. Replicas are compared after each batch.

A history is one seed. Further seeds follow until --time of CPU time is used up. A
violation ends the command with exit code 1 and prints the seed that reproduces it.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.Uint64Var(&f.config.Seed, "seed", 0, "`seed` to simulate, the first one with --time; 0 for a random one")
	flags.DurationVar(&f.config.Duration, "duration", time.Hour, "virtual `time` of faults in each history")
	flags.IntVar(&f.config.Nodes, "nodes", 5, "`nodes` of the cluster; the first three hold replicas")
	flags.DurationVar(&f.processor, "time", 0, "continue with further seeds for this CPU `time`")
	flags.StringVar(&f.bug, "bug", dst.BugNone.String(), "plant a `bug`, to check that it is found")
	flags.BoolVar(&f.jsonOutput, "json", false, "print JSON")
	return cmd
}

func (f *dstFlags) run(cmd *cobra.Command) error {
	bug, err := dst.ParseBug(f.bug)
	if err != nil {
		return cli.UsageErrorf("--bug: %v", err)
	}
	f.config.Bug = bug
	if f.config.Seed == 0 {
		f.config.Seed = rand.Uint64() //nolint:gosec // Any seed will do; it is printed.
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "berth: seed %d\n", f.config.Seed)
	totals, err := f.simulate(cmd.Context())
	found, violated := errors.AsType[*dst.Violation](err)
	if err != nil && !violated {
		return err
	}
	if violated {
		totals.Violation = found.Error()
	}
	if f.jsonOutput {
		err = cli.PrintJSON(cmd.OutOrStdout(), totals)
	} else {
		err = totals.print(cmd.OutOrStdout())
	}
	if violated {
		return fmt.Errorf("%w\nIt is shown again by: berth bench dst --seed %d --duration %v --nodes %d --bug %v",
			found, found.Seed, f.config.Duration, f.config.Nodes, bug)
	}
	return err
}

// simulate simulates one history after the other.
func (f *dstFlags) simulate(ctx context.Context) (*dstTotals, error) {
	began := usage.CPU()
	totals, c := &dstTotals{First: f.config.Seed}, f.config
	for {
		report, failed := dst.Run(ctx, c)
		used := usage.CPU() - began
		totals.add(report, c.Duration, used)
		if failed != nil || used >= f.processor {
			return totals, failed
		}
		c.Seed++
	}
}

// add adds a history.
func (t *dstTotals) add(r dst.Report, faults, used time.Duration) {
	t.Histories++
	t.FaultHours += min(faults.Hours(), r.VirtualSeconds/time.Hour.Seconds())
	t.ProcessorSeconds = used.Seconds()
	t.HoursPerHour = t.FaultHours / used.Hours()
	t.Sums.Add(r)
}

// print writes the totals as text.
func (t *dstTotals) print(out io.Writer) error {
	s := &t.Sums
	fmt.Fprintf(out, "%d histories with %.1f hours of faults in %.1f s of the processor: %.0f cluster-hours an hour\n\n",
		t.Histories, t.FaultHours, t.ProcessorSeconds, t.HoursPerHour)
	lines := cli.NewTable("event", "times", "check", "times")
	lines.AppendRow(cli.Row("crashes", s.Crashes, "entries of the log", s.Entries))
	lines.AppendRow(cli.Row("partitions", s.Partitions, "acknowledged submits", s.Submits))
	lines.AppendRow(cli.Row("elections", s.Elections, "starts of code", s.Starts))
	lines.AppendRow(cli.Row("messages lost", s.Dropped, "executions that ended", s.Executions))
	lines.AppendRow(cli.Row("messages twice", s.Duplicated, "hashes of replicas compared", s.Compared))
	lines.AppendRow(cli.Row("attempts given up", s.Lost, "checks of the whole state", s.Checks))
	return cli.PrintTable(out, lines)
}
