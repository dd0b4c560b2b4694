package benchcmd

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/bench/simulate"
	"berth/cmd/berth/cli"
)

// defaultMix is the only synthetic mix.
const defaultMix = "default"

// simulateFlags are the flags of berth bench simulate.
type simulateFlags struct {
	config     simulate.Config
	mix        string
	plots      string
	jsonOutput bool
}

// newSimulate returns the command berth bench simulate.
func newSimulate() *cobra.Command {
	f := &simulateFlags{}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Simulate days of a large cluster in minutes",
		Long: `Simulate submits executions to the state machine that nodes replicate and lets the
scheduler that leaders run place them, under a clock of its own. It prints how much
of the GPUs was used, how long work waited by priority and size, how fair it was
between organizations (Jain's index), how fragmented the cluster became, and what
memory nodes and queued executions take.

The work is a synthetic mix, or the pods of a CSV file as for berth bench packing.
A trace may have creation_time, scheduled_time, deletion_time, org and priority;
what it lacks is drawn by chance. Its times are stretched so that the GPUs asked
for are the --load; with --load 0 they are kept.

With --preemptible part of the work of priority 0 is preempted for higher ones, with
--failures and --drains nodes go away for a while (exponential times, by the seed):
what executes on a node that fails ends with it.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config.Nodes, "nodes", "1000", "a `number` of synthetic nodes, or a CSV file of nodes")
	flags.IntVar(&f.config.Executions, "executions", 100_000, "`executions` to submit; a shorter trace is repeated")
	flags.StringVar(&f.config.Trace, "trace", "", "CSV `file` of pods to submit")
	flags.StringVar(&f.mix, "mix", defaultMix, "the synthetic `mix`, instead of a trace: default")
	flags.Float64Var(&f.config.Load, "load", 0.95, "requested GPUs as a `share` of all GPUs")
	flags.IntVar(&f.config.Organizations, "organizations", 10, "number of `organizations` that share the work")
	flags.Uint64Var(&f.config.Seed, "seed", 42, "random `seed`")
	flags.DurationVar(&f.config.Round, "round", time.Second, "virtual `time` between two scheduling passes")
	flags.DurationVar(&f.config.Estimates, "estimates", 0,
		"record estimates of starts every so much virtual `time`, as 10s, and show how good they were")
	flags.Float64Var(&f.config.Preemptible, "preemptible", 0,
		"`share` of the work of priority 0 that is preemptible")
	flags.DurationVar(&f.config.Failures, "failures", 0, "mean `time` between two failures of a node, as 720h; 0 for none")
	flags.DurationVar(&f.config.Drains, "drains", 0, "mean `time` between two drains of a node; 0 for none")
	flags.DurationVar(&f.config.Repair, "repair", time.Hour, "mean `time` until a node returns")
	flags.StringVar(&f.plots, "plots", "", "`directory` for charts, as SVG and PNG")
	flags.BoolVar(&f.jsonOutput, "json", false, "print JSON, with the cluster over time")
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "pods" { // The name in berth bench packing.
			name = "trace"
		}
		return pflag.NormalizedName(name)
	})
	cmd.MarkFlagsMutuallyExclusive("trace", "mix")
	return cmd
}

func (f *simulateFlags) run(cmd *cobra.Command) error {
	if f.mix != defaultMix {
		return cli.UsageErrorf("--mix: no mix %q; there is %s, and --trace replays a file", f.mix, defaultMix)
	}
	f.config.Now = time.Now
	f.config.Progress = progressTo(cmd.ErrOrStderr())
	report, err := simulate.Run(cmd.Context(), f.config)
	if err != nil {
		return commandError(err)
	}
	if f.plots != "" {
		files, err := report.WritePlots(f.plots)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "berth: %d charts are in %s\n", len(files), f.plots)
	}
	if f.jsonOutput {
		return cli.PrintJSON(cmd.OutOrStdout(), report)
	}
	return printSimulation(cmd.OutOrStdout(), report)
}

// printSimulation writes the report as tables.
func printSimulation(w io.Writer, r *simulate.Report) error {
	virtual := time.Duration(r.VirtualSeconds * float64(time.Second)).Truncate(time.Second)
	fmt.Fprintf(w, "%d executions on %d nodes with %d GPUs, %v of virtual time; %d completed",
		r.Executions, r.Nodes, r.GPUs, virtual, r.Completed)
	for reason, n := range r.Refused {
		fmt.Fprintf(w, ", %d refused as %s", n, reason)
	}
	if r.NeverPlaced > 0 {
		fmt.Fprintf(w, ", %d never placed", r.NeverPlaced)
	}
	fmt.Fprintf(w, "\nGPU utilisation %.2f %%, fragment %.2f %% (at most %.2f %%), longest queue %d\n\n",
		r.Utilisation, r.Fragment.Mean, r.Fragment.Most, r.QueueMost)

	t := cli.NewTable("priority", "size", "executions", "mean wait", "p50", "p90", "p99")
	for i := range r.Waits {
		wait := &r.Waits[i]
		priority, size := "all", wait.Size
		if wait.Priority != nil {
			priority = fmt.Sprint(*wait.Priority)
		}
		if size == "" {
			size = "all"
		}
		t.AppendRow(cli.Row(priority, size, wait.Count,
			seconds(wait.Mean), seconds(wait.P50), seconds(wait.P90), seconds(wait.P99)))
	}
	if err := cli.PrintTable(w, t); err != nil {
		return err
	}
	t = cli.NewTable("organization", "executions", "gpu hours asked", "had", "slowdown", "mean wait", "p90")
	for _, o := range r.Fairness.Organizations {
		t.AppendRow(cli.Row(o.Name, o.Executions, fmt.Sprintf("%.0f", o.Asked/3600), fmt.Sprintf("%.0f", o.Given/3600),
			fmt.Sprintf("%.2f", o.Slowdown), seconds(o.MeanWait), seconds(o.P90Wait)))
	}
	fmt.Fprintf(w, "\nFairness (Jain's index): %.4f of service, %.4f of slowdown\n",
		r.Fairness.Service, r.Fairness.Slowdown)
	if err := cli.PrintTable(w, t); err != nil {
		return err
	}
	if i := r.Interruptions; i != (simulate.Interruptions{}) {
		fmt.Fprintf(w, "\nInterruptions: %d attempts were preempted (%.0f GPU hours of work); %d nodes failed, "+
			"with them %d executions (%.0f GPU hours); %d nodes were drained\n",
			i.Preempted, i.PreemptedS/3600, i.Failures, i.Lost, i.LostS/3600, i.Drains)
	}
	if e := r.Estimates; e != nil {
		fmt.Fprintf(w, "\nEstimates of starts: %d executions, %.1f %% started by their p50 and %.1f %% by their p90\n",
			e.Total, e.CoveredP50, e.CoveredP90)
	}
	c := &r.Cost
	_, err := fmt.Fprintf(w, `
Memory: %.0f bytes a node, %.0f bytes a queued execution, at most %.0f MiB in all
It took %.1f s: %.1f s to set up, %.1f s in the state machine (%.1f us each of %d commands),
%.1f s to encode them, %.1f s in the scheduler (%.0f us each of %d plans)
`, r.Memory.PerNode, r.Memory.PerQueued, float64(r.Memory.PeakHeap)/(1<<20),
		c.WallSeconds, c.SetupSeconds, c.ApplySeconds, c.MicrosPerChange, c.Commands,
		c.EncodeSeconds, c.PackSeconds, c.MicrosPerPlan, c.Plans)
	return err
}

// seconds returns a readable time.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < time.Minute:
		return d.Truncate(10 * time.Millisecond).String()
	case d < time.Hour:
		return d.Truncate(time.Second).String()
	}
	return d.Truncate(time.Minute).String()
}
