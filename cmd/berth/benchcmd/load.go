package benchcmd

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"berth/bench/load"
	"berth/bench/schedule"
	"berth/bench/usage"
	"berth/cmd/berth/cli"
)

// newIdle returns the command berth bench idle.
func newIdle() *cobra.Command {
	var settle, window time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "idle",
		Short: "Measure the processor time of an idle cluster",
		Long: `Idle starts three servers on this machine, waits until they have settled, and measures
how much processor time each uses while nothing is asked of it.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if settle < 0 || window < time.Second {
				return cli.UsageErrorf("--settle must be 0s or more, and --window 1s or more")
			}
			return withLoad(cmd, func(c *load.Cluster) error {
				r, err := load.MeasureIdle(cmd.Context(), c, settle, window)
				if err != nil || asJSON {
					return errors.Join(err, printIf(cmd, err == nil, r))
				}
				t := cli.NewTable("node", "processor")
				for _, n := range c.Nodes {
					role := ""
					if n.Leader {
						role = " (leader)"
					}
					t.AppendRow(cli.Row(n.Name+role, ofCore(r.Nodes[n.Name])))
				}
				t.AppendRow(cli.Row("together", fmt.Sprintf("%s, limit %s", ofCore(r.Together), ofCore(r.Reference))))
				return cli.PrintTable(cmd.OutOrStdout(), t)
			})
		},
	}
	cmd.Flags().DurationVar(&settle, "settle", 15*time.Second, "`time` to wait first")
	cmd.Flags().DurationVar(&window, "window", time.Minute, "`time` to measure")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newExecutions returns the command berth bench executions.
func newExecutions() *cobra.Command {
	cfg := load.ExecutionsConfig{}
	var asJSON bool
	var mounts int
	var mountsAt string
	cmd := &cobra.Command{
		Use:   "executions",
		Short: "Measure how fast code is executed",
		Long: `Executions starts three servers on this machine and executes Python code that does
nothing, asked of a follower: one a second, one after the other, from many clients at once, and one
after the other again behind a queue of others that wait for GPUs. Beside it stands the
time that the interpreter alone takes for the same code: the one that nodes start, not a
wrapper of it. It also measures how much later a
client of another node sees a line that code prints, how fast code can print, and what
installed packages add. With --image it executes that image beside docker run, in turn. It
needs root.

With --foreign-mounts it compares clusters on a machine without and with so many mounts
instead, two of each in turn. The mounts are in namespaces of their own.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Alone < 1 || cfg.Many < 1 || cfg.Clients < 1 || cfg.Lines < 1 || cfg.OutputMiB < 1 || cfg.Waiting < 0 ||
				mounts < 0 {
				return cli.UsageErrorf(
					"--alone, --many, --clients, --lines and --output must be 1 or more, " +
						"and --waiting and --foreign-mounts 0 or more")
			}
			if mountsAt != "" {
				if err := load.MakeMounts(mountsAt, mounts); err != nil {
					return err
				}
			} else if mounts > 0 {
				return compareMounts(cmd, cfg, mounts, asJSON)
			}
			packages, err := os.MkdirTemp("", "berth-bench-packages-")
			if err != nil {
				return fmt.Errorf("make directory: %w", err)
			}
			defer os.RemoveAll(packages)
			if err := os.Chmod(packages, 0o755); err != nil { // Installers have users of their own.
				return fmt.Errorf("make directory: %w", err)
			}
			if err := load.MakePackage(cmd.Context(), cfg.Python, packages); err != nil {
				return err
			}
			cfg.Package = true
			return withLoad(cmd, func(c *load.Cluster) error {
				r, err := load.MeasureExecutions(cmd.Context(), c, cfg)
				if err != nil || asJSON {
					return errors.Join(err, printIf(cmd, err == nil, r))
				}
				return cli.PrintTable(cmd.OutOrStdout(), executionsTable(&r))
			}, "python.offline=true", "python.find_links="+packages)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Alone, "alone", 100, "`executions` one after the other")
	flags.IntVar(&cfg.Lines, "lines", 200, "`lines` that are printed and read")
	flags.IntVar(&cfg.Many, "many", 500, "`executions` of all clients together")
	flags.IntVar(&cfg.Clients, "clients", 16, "`clients` at once")
	flags.IntVar(&cfg.Waiting, "waiting", 20_000, "`executions` that wait for GPUs, at last")
	flags.StringVar(&cfg.Python, "python", "python3", "`interpreter` of the reference")
	flags.IntVar(&cfg.OutputMiB, "output", 8, "`MiB` that one execution prints; beyond 10 MiB a second it is slowed down")
	flags.StringVar(&cfg.Image, "image", "", "`image` on this machine's engine to execute too")
	flags.StringSliceVar(&cfg.Command, "command", nil, "`arguments` of the image")
	flags.IntVar(&mounts, "foreign-mounts", 0, "`mounts` of the machine, with and without which to compare")
	flags.StringVar(&mountsAt, placeFlag, "", "`directory` of the mounts, in the namespace of this process")
	_ = flags.MarkHidden(placeFlag) // Between this command and the one that it starts.
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// executionsTable shows what MeasureExecutions found.
func executionsTable(r *load.Executions) table.Writer {
	t := cli.NewTable("figure", "value")
	t.AppendRow(cli.Row("submit to end, seen by the client, now and then", spreadText(r.Paused)))
	t.AppendRow(cli.Row("the same, one after the other", spreadText(r.Alone)))
	t.AppendRow(cli.Row("the interpreter alone", spreadText(r.Reference)))
	t.AppendRow(cli.Row("ratio of the medians", fmt.Sprintf("%.2f", r.Ratio)))
	t.AppendRow(cli.Row("a printed line, seen through another node", spreadText(r.Lines)))
	t.AppendRow(cli.Row(fmt.Sprintf("executions a second, %d clients", r.Clients), fmt.Sprintf("%.1f", r.PerSecond)))
	t.AppendRow(cli.Row("starts of the interpreter alone a second, as many at once", fmt.Sprintf("%.1f", r.AlonePS)))
	t.AppendRow(cli.Row("processor time of the nodes for each", fmt.Sprintf("%.1f ms, without sandboxes", r.CPUMS)))
	t.AppendRow(cli.Row("the same with supervisors and sandboxes", fmt.Sprintf("%.1f ms", r.AllCPUMS)))
	if b := r.Backlog; b.Waiting > 0 {
		t.AppendRow(cli.Row(fmt.Sprintf("submit to end behind %d that wait", b.Waiting), spreadText(b.Alone)))
		t.AppendRow(cli.Row("ratio of the medians behind them and without", fmt.Sprintf("%.2f", b.Ratio)))
		t.AppendRow(cli.Row("processor time of the nodes for each that waits", fmt.Sprintf("%.2f ms", b.SubmitCPU)))
	}
	t.AppendRow(cli.Row("code prints, nobody reads", fmt.Sprintf("%.0f MiB/s", r.Output.Disk)))
	t.AppendRow(cli.Row("a client of another node reads it", fmt.Sprintf("%.0f MiB/s", r.Output.Follower)))
	t.AppendRow(cli.Row("the same code into cat and a file", fmt.Sprintf("%.0f MiB/s", r.Output.Pipe)))
	if p := r.Packages; p != nil {
		t.AppendRow(cli.Row("submit to end with an installed package", spreadText(p.With)))
		t.AppendRow(cli.Row("more than without, of the medians", fmt.Sprintf("%.1f ms", p.ExtraMS)))
	}
	if d := r.Containers; d != nil {
		t.AppendRow(cli.Row("submit to end of a container", spreadText(d.Alone)))
		t.AppendRow(cli.Row("docker run of its image", spreadText(d.Reference)))
		t.AppendRow(cli.Row("ratio of the medians", fmt.Sprintf("%.2f", d.Ratio)))
	}
	return t
}

// touched is more memory than three servers, their clients and Raft alone take while thousands of
// requests are measured.
const touched = 1536 << 20

// newAPI returns the command berth bench api.
func newAPI() *cobra.Command {
	cfg := load.RequestsConfig{}
	var levels []int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "api",
		Short: "Measure how fast servers accept and answer",
		Long: `Api measures Raft alone on this machine, starts three servers, and drains them so that nothing
starts. Many clients send durable submits, half of them to the leader and half to a follower;
a tenth as many before are not measured. Then a follower is asked for a status, linearizable
and stale, and for a whole record. It needs root. It uses 1.5 GiB of memory for a moment before,
because the host of a virtual machine provides a page when it is first used, which takes long.

With --sweep 1,16,64,256,1024 it asks all three servers instead, with so many clients, one
number after another: submits, reads, and requests that are refused, each with what the
servers allocated for it, beside a bare fasthttp server.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Submits < 1 || cfg.Clients < 1 || cfg.Readers < 1 || cfg.ReadFor < time.Second ||
				len(levels) > 0 && (slices.Min(levels) < 1 || slices.Max(levels) > maxSweep || cfg.Submits < len(levels)) {
				return cli.UsageErrorf("--submits, --clients and --readers must be 1 or more, --read-for 1s or more, "+
					"and --sweep 1 to %d", maxSweep)
			}
			if err := usage.TouchMemory(touched); err != nil {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "berth: measuring Raft alone")
			var err error
			if cfg.BareRaft, err = schedule.BareRaft(cmd.Context()); err != nil {
				return err
			}
			if len(levels) > 0 {
				return sweepClients(cmd, load.SweepConfig{
					Clients: levels, For: cfg.ReadFor, Submits: cfg.Submits / len(levels), BareRaft: cfg.BareRaft,
				}, asJSON)
			}
			return withLoad(cmd, func(c *load.Cluster) error {
				r, err := load.MeasureRequests(cmd.Context(), c, cfg)
				if err != nil || asJSON {
					return errors.Join(err, printIf(cmd, err == nil, r))
				}
				t := cli.NewTable("figure", "a second", "processor of the nodes", "times")
				t.AppendRow(cli.Row("entries of Raft alone", rate(r.BareRaftPS), "", ""))
				t.AppendRow(cli.Row("durable submits", fmt.Sprintf("%s, %.2f of Raft alone", rate(r.SubmitsPS), r.Ratio),
					fmt.Sprintf("%.2f ms each", r.SubmitCPU), spreadText(r.Submits)))
				for _, reads := range []struct {
					name string
					of   load.Reads
				}{
					{"linearizable status reads", r.Linearizable},
					{"stale status reads", r.Stale},
					{"whole records that have ended", r.Whole},
				} {
					t.AppendRow(cli.Row(reads.name, rate(reads.of.PerSecond),
						fmt.Sprintf("%.3f ms each", reads.of.CPUMS), spreadText(reads.of.Spread)))
				}
				return cli.PrintTable(cmd.OutOrStdout(), t)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Submits, "submits", 9000, "`submits`; an organization may queue 10,000")
	flags.IntVar(&cfg.Clients, "clients", 256, "`clients` that submit at once")
	flags.IntVar(&cfg.Readers, "readers", 64, "`clients` that read at once")
	flags.DurationVar(&cfg.ReadFor, "read-for", 5*time.Second, "`time` for each series of reads")
	flags.IntSliceVar(&levels, "sweep", nil, "numbers of `clients`, to measure one after another")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// maxSweep is the largest number of clients at once: each has a connection.
const maxSweep = 4096

// sweepClients measures with more and more clients.
func sweepClients(cmd *cobra.Command, cfg load.SweepConfig, asJSON bool) error {
	return withLoad(cmd, func(c *load.Cluster) error {
		r, err := load.MeasureSweep(cmd.Context(), c, cfg)
		if err != nil || asJSON {
			return errors.Join(err, printIf(cmd, err == nil, r))
		}
		t := cli.NewTable("clients", "figure", "a second", "allocations", "times")
		for _, l := range r.Levels {
			for _, series := range []struct {
				name string
				of   load.Asked
			}{
				{fmt.Sprintf("durable submits (Raft alone %s)", rate(r.BareRaftPS)), l.Submits},
				{"linearizable status reads", l.Linearizable},
				{"stale status reads", l.Stale},
				{"unknown credentials (401, 429)", l.Unknown},
				{"invalid bodies (422)", l.Invalid},
				{"bare fasthttp answers", l.Bare},
			} {
				t.AppendRow(cli.Row(strconv.Itoa(l.Clients), series.name, rate(series.of.PerSecond),
					rate(series.of.Allocs), spreadText(series.of.Spread)))
			}
		}
		return cli.PrintTable(cmd.OutOrStdout(), t)
	})
}

// printIf prints a report as JSON if there is one.
func printIf(cmd *cobra.Command, ok bool, report any) error {
	if !ok {
		return nil
	}
	return cli.PrintJSON(cmd.OutOrStdout(), report)
}

func ofCore(share float64) string { return fmt.Sprintf("%.2f %% of a core", 100*share) }

func rate(perSecond float64) string { return fmt.Sprintf("%.0f", perSecond) }

func spreadText(s load.Spread) string {
	return fmt.Sprintf("p50 %.1f ms, p90 %.1f ms, p99 %.1f ms", s.P50MS, s.P90MS, s.P99MS)
}
