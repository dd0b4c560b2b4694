package benchcmd

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/bench/workers"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/dev"
)

// The cluster of berth bench workers.
const (
	workerServers = 3
	workerGPU     = "t4"
	mostWorkers   = dev.MaxNodes - workerServers
)

// workersFlags are the flags of berth bench workers.
type workersFlags struct {
	workers    int
	calm       time.Duration
	jsonOutput bool
}

// newWorkers returns the command berth bench workers.
func newWorkers() *cobra.Command {
	f := &workersFlags{}
	cmd := &cobra.Command{
		Use:   "workers",
		Short: "Measure a cluster with many workers on one machine",
		Long: `Workers starts three servers and many workers on this machine, each as a process with
one simulated GPU, and waits until all are up. It measures CPU and memory of the idle
processes. Then it asks a follower for as many executions as there are workers, each
for a whole GPU.

The exit code is 1 unless all complete, each on a different worker. It needs root, and
about 50 MiB of memory per worker.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.workers, "workers", 200, fmt.Sprintf("`workers`, 1 to %d", mostWorkers))
	flags.DurationVar(&f.calm, "calm", 30*time.Second, "idle `time` to measure")
	flags.BoolVar(&f.jsonOutput, "json", false, "print JSON")
	return cmd
}

func (f *workersFlags) run(cmd *cobra.Command) error {
	if f.workers < 1 || f.workers > mostWorkers {
		return cli.UsageErrorf("--workers: %d is not 1 to %d", f.workers, mostWorkers)
	}
	gpus := make([]string, f.workers)
	for i := range gpus {
		gpus[i] = fmt.Sprintf("n%d=%s:1", workerServers+i+1, workerGPU)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "berth: starting %d servers and %d workers\n", workerServers, f.workers)
	began := time.Now() //nolint:forbidigo // Real processes have real time.
	cfg := dev.Config{Nodes: workerServers + f.workers, Workers: f.workers, GPUs: strings.Join(gpus, ";")}
	return withCluster(cmd, cfg, func(state *dev.State) error { return f.measure(cmd, state, time.Since(began)) })
}

// measure measures a cluster. up is the time it took to come up.
func (f *workersFlags) measure(cmd *cobra.Command, state *dev.State, up time.Duration) error {
	cfg := workers.Config{
		RootToken: state.RootToken, APIKey: state.APIKey, Org: state.OrgSlug, GPUType: workerGPU, Idle: f.calm,
		Progress: progressTo(cmd.ErrOrStderr()),
	}
	for i, n := range state.Nodes {
		one := workers.Node{URL: n.API, PID: n.PID}
		if i >= workerServers {
			cfg.Workers = append(cfg.Workers, one)
			continue
		}
		cfg.Servers = append(cfg.Servers, one)
		if n.ID != state.Leader {
			cfg.Follower = n.API
		}
	}
	report, err := workers.Run(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	if f.jsonOutput {
		err = cli.PrintJSON(cmd.OutOrStdout(), report)
	} else {
		err = printWorkers(cmd.OutOrStdout(), &report, up)
	}
	if err == nil && (report.Completed < report.Executions || report.Executed < report.Workers) {
		err = fmt.Errorf("%d of %d executions completed, on %d of %d workers",
			report.Completed, report.Executions, report.Executed, report.Workers)
	}
	return err
}

// printWorkers writes the report as a table.
func printWorkers(w io.Writer, r *workers.Report, up time.Duration) error {
	t := cli.NewTable("figure", "value")
	line := func(name, format string, args ...any) { t.AppendRow(cli.Row(name, fmt.Sprintf(format, args...))) }
	line("all up", "%.1f s after the first process was started", up.Seconds())
	line("processor of a worker", "%.2f %% of one, idle for %.0f s", 100*r.WorkerCPU, r.IdleS)
	line("processor of the busiest server", "%.1f %%", 100*r.ServerCPU)
	line("memory of a worker", "%.0f MiB in the middle, %.0f MiB at most", r.WorkerMiB, r.LargestMiB)
	line("memory of a server", "%.0f MiB", r.ServerMiB)
	line("executions", "%d of %d completed, on %d nodes", r.Completed, r.Executions, r.Executed)
	line("submitted", "in %.1f s, one after the other", r.SubmitS)
	line("all ended", "%.1f s after the first submit; each takes %.0f s", r.DoneS, r.HeldS)
	line("nodes not up", "at most %d of %d", r.MostDown, r.Workers+r.Servers)
	line("elections", "%d", r.Elections)
	return cli.PrintTable(w, t)
}
