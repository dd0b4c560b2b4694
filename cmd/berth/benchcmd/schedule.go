package benchcmd

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"berth/bench/schedule"
	"berth/cmd/berth/cli"
)

// scheduleFlags are the flags of berth bench schedule.
type scheduleFlags struct {
	config     schedule.Config
	verbose    bool
	jsonOutput bool
}

// newSchedule returns the command berth bench schedule.
func newSchedule() *cobra.Command {
	f := &scheduleFlags{}
	cmd := &cobra.Command{
		Use:   "schedule",
		Short: "Measure durable placements per second",
		Long: `Schedule starts three peers with Raft over mutual TLS and an fsync for every entry,
registers simulated nodes of eight GPUs, queues executions, and lets the leader's
own loop place them. An execution counts once the entry with its plan is committed
on a quorum and applied on the leader. Then it submits at a steady rate and measures
the time from submit to the commit of the placement. The report includes what bare
Raft commits on the same peers in the same run, and figures of other systems.

The peers are in one process. The simulated nodes are records without processes, so
nothing is executed and nothing ends.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.config.Nodes, "nodes", schedule.DefaultNodes, "simulated `nodes`")
	flags.IntVar(&f.config.Queued, "queued", schedule.DefaultQueued, "`executions` in the queue when the loop starts")
	flags.IntVar(&f.config.Rate, "rate", schedule.DefaultRate, "`submits` per second while latency is measured")
	flags.DurationVar(&f.config.Steady, "steady", schedule.DefaultSteady,
		"`time` for which latency is measured, 0s for not at all")
	flags.Uint64Var(&f.config.Seed, "seed", 42, "`seed` of the workload")
	flags.StringVar(&f.config.Dir, "dir", "", "empty `directory` for the peers' data (default: a temporary one)")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "show the log of the peers")
	flags.BoolVar(&f.jsonOutput, "json", false, "print JSON")
	return cmd
}

func (f *scheduleFlags) run(cmd *cobra.Command) error {
	if err := f.config.Validate(); err != nil {
		return &cli.ExitError{Code: cli.ExitUsage, Err: err}
	}
	f.config.Progress = progressTo(cmd.ErrOrStderr())
	if f.verbose {
		f.config.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	}
	report, err := schedule.Run(cmd.Context(), f.config)
	if err != nil {
		return err
	}
	if f.jsonOutput {
		return cli.PrintJSON(cmd.OutOrStdout(), report)
	}
	return printSchedule(cmd.OutOrStdout(), &report)
}

// printSchedule writes the report as two tables.
func printSchedule(w io.Writer, r *schedule.Report) error {
	rates := cli.NewTable("durable placements", "per second", "ratio")
	add := func(system string, rate float64) {
		rates.AppendRow(cli.Row(system, fmt.Sprintf("%.0f", rate), fmt.Sprintf("%.2f", r.PlacementsPS/rate)))
	}
	add("Berth", r.PlacementsPS)
	for _, p := range r.Published {
		add(p.System+" (published)", p.PlacementsPS)
	}
	add("bare Raft entries, this run", r.BareRaftPS)
	if err := cli.PrintTable(w, rates); err != nil {
		return err
	}
	figures := cli.NewTable("figure", "value")
	line := func(name, format string, args ...any) { figures.AppendRow(cli.Row(name, fmt.Sprintf(format, args...))) }
	line("placed", "%d of %d in %.2f s, %d plans", r.Placed, r.Queued, r.Seconds, r.Plans)
	line("processor time per placement", "%.0f us, all peers", r.CPUMicros)
	line("a new leader's first plan", "%.0f ms", r.FirstPlanMS)
	line("time in commits", "%.0f %%", 100*r.CommitShare)
	line("submits while filling", "%.0f/s", r.SubmitsPS)
	if l := r.Latency; l != nil {
		line("submit to placement", "p50 %.1f ms, p99 %.1f ms, most %.1f ms at %.0f/s", l.P50, l.P99, l.Max, l.RatePS)
		line("submit alone", "p50 %.1f ms", l.SubmitP50)
	}
	line("memory of a node", "%d B, and %d B in the scheduler", r.Memory.PerNode, r.Memory.SchedulerPerNode)
	line("memory of a queued execution", "%d B, and %d B in the scheduler",
		r.Memory.PerQueued, r.Memory.SchedulerPerQueued)
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := cli.PrintTable(w, figures); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d nodes with %d GPUs, %d peers in one process, %d cores.\n",
		r.Nodes, r.GPUs, r.Peers, r.Cores)
	return err
}
