package benchcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/bench/faults"
	"berth/cmd/berth/cli"
)

// faultsFlags are the flags of berth bench faults.
type faultsFlags struct {
	config     faults.Config
	total      time.Duration
	out        string
	report     string
	into       string
	controls   bool
	keep       bool
	markdown   bool
	jsonOutput bool

	version, revision string // Version and revision of this program, for the report.
}

// newFaults returns the command berth bench faults of a program.
func newFaults(version, revision string) *cobra.Command {
	f := &faultsFlags{version: version, revision: revision}
	cmd := &cobra.Command{
		Use:   "faults",
		Short: "Inject faults into a cluster under load and check that nothing acknowledged is lost",
		Long: `Faults starts a cluster of berth processes, each in its own network namespace and on
its own file system. Clients work on it through the API while one fault after another
is injected: processes, machines, networks, disks, clocks. At the end everything is
repaired and checked: linearizability of client histories, equal replicas, exact
ledgers, and that each attempt's code started once.

Faults that outlast the lease of an attempt (long-...) take a minute each. They come
after one minute and then every two and a half, in runs of at least four minutes, or
whenever --only names them.

A run is one seed, which decides the faults and the requests. Further runs follow
until --total is used up. A violation ends the command with exit code 1, keeps the
directory and prints the seed. It needs root.

Faults: ` + strings.Join(faults.Nemeses(), ", ") + `.
Workloads: ` + strings.Join(faults.Workloads(), ", ") + `.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.Uint64Var(&f.config.Seed, "seed", 0, "first `seed`; 0 for a random one")
	flags.DurationVar(&f.config.Duration, "duration", 6*time.Minute, "`time` of faults in each run")
	flags.DurationVar(&f.total, "total", 0, "continue with further seeds for this `time`")
	flags.IntVar(&f.config.Nodes, "nodes", 3, "`nodes` of the cluster, 3 to 9")
	flags.IntVar(&f.config.Workers, "workers", 0, "additional `nodes` of role worker, 0 to 3")
	flags.StringSliceVar(&f.config.Nemeses, "only", nil, "inject only these `faults`")
	flags.StringSliceVar(&f.config.Workloads, "workload", nil, "run only these `workloads`")
	flags.IntVar(&f.config.Count, "count", 0, "end a run after this number of `faults`")
	flags.DurationVar(&f.config.Hold, "hold", 0, "`time` that each fault lasts; 0 for a random time")
	flags.StringVar(&f.config.Binary, "binary", "", "the berth `program` of the nodes (default: this one)")
	flags.StringVar(&f.config.Dir, "dir", "", "`directory` for logs and data (default: a temporary one)")
	flags.BoolVar(&f.config.Points, "points", false, "the program was built with failpoints, -tags faults")
	flags.StringVar(&f.config.Plant, "plant", "", "plant a `bug` into every node, to check that it is found")
	flags.BoolVar(&f.controls, "controls", false, "plant each bug in turn and require that it is found")
	flags.StringVar(&f.report, "report", "", "only summarize the runs in this `file`")
	flags.StringVar(&f.out, "out", "", "append each run to this `file`, a line of JSON each")
	flags.BoolVar(&f.keep, "keep", false, "keep the directory of runs without a violation, too")
	flags.BoolVar(&f.markdown, "markdown", false, "print the summary of --report as Markdown")
	flags.StringVar(&f.into, "into", "", "replace the figures in this Markdown `page` with the summary of --report")
	flags.BoolVar(&f.jsonOutput, "json", false, "print JSON")
	return cmd
}

// errViolated is the command's error after a run with violations.
var errViolated = errors.New("invariant violated")

// manyFaults is the maximum duration of a run that ends after a number of
// faults.
const manyFaults = 48 * time.Hour

// complete fills in omitted flags.
func (f *faultsFlags) complete() (err error) {
	if f.config.Seed == 0 {
		f.config.Seed = uint64(rand.Uint32()) //nolint:gosec // Any seed will do; it is printed.
	}
	if f.config.Binary == "" {
		f.config.Binary, err = os.Executable()
	}
	if err == nil && f.config.Dir == "" {
		f.config.Dir, err = os.MkdirTemp("", "berth-faults-")
	}
	return err
}

func (f *faultsFlags) run(cmd *cobra.Command) error {
	switch {
	case f.markdown && (f.report == "" || f.jsonOutput):
		return cli.UsageErrorf("--markdown goes with --report, and not with --json")
	case f.into != "" && (f.report == "" || f.jsonOutput || f.markdown):
		return cli.UsageErrorf("--into goes with --report, and not with --json or --markdown")
	case f.report != "":
		return f.addUp(cmd.OutOrStdout())
	}
	if err := f.complete(); err != nil {
		return err
	}
	f.config.Progress = cmd.ErrOrStderr()
	if f.config.Count > 0 && !cmd.Flags().Changed("duration") {
		f.config.Duration = manyFaults
	}
	if err := f.config.Validate(); err != nil {
		return cli.UsageErrorf("%v", err)
	}
	if f.controls {
		return f.runControls(cmd)
	}
	began := time.Now() //nolint:forbidigo // Real processes have real time.
	for {
		report, err := f.runOnce(cmd.Context(), cmd.ErrOrStderr())
		if !report.Began.IsZero() {
			err = errors.Join(err, f.show(cmd.OutOrStdout(), report))
		}
		if err != nil || time.Since(began) >= f.total {
			return err
		}
		f.config.Seed++
	}
}

// addUp prints the sums of the runs in a file, or inserts them into a page.
func (f *faultsFlags) addUp(w io.Writer) error {
	runs, err := readFaultRuns(f.report)
	switch {
	case err != nil:
		return err
	case f.into != "":
		return runs.into(f.into)
	case f.jsonOutput:
		return cli.PrintJSON(w, faults.Sum(runs.reports))
	case f.markdown:
		return writeFaultRuns(w, runs)
	}
	return printFaultRuns(w, runs)
}

// runControls plants each bug and requires that it is found.
func (f *faultsFlags) runControls(cmd *cobra.Command) error {
	f.config.Points = true
	lines := cli.NewTable("planted bug", "seeds", "found by")
	var missed []error
	for _, control := range faults.Controls() {
		fmt.Fprintf(cmd.ErrOrStderr(), "berth: planted: %s\n", control.Bug)
		found, err := faults.RunControl(cmd.Context(), f.config, control)
		if err != nil {
			return err
		}
		by := found.By()
		if by == "" {
			by = "NOTHING"
			missed = append(missed, fmt.Errorf("%s was not found within %d runs", control.Bug, found.Seeds))
		}
		lines.AppendRow(cli.Row(string(control.Bug), found.Seeds, by))
	}
	return errors.Join(append(missed, cli.PrintTable(cmd.OutOrStdout(), lines), os.RemoveAll(f.config.Dir))...)
}

// runOnce does one run and stores its report. It removes the run's directory if
// there was no violation.
func (f *faultsFlags) runOnce(ctx context.Context, progress io.Writer) (faults.Report, error) {
	fmt.Fprintf(progress, "berth: seed %d, in %s\n", f.config.Seed, f.config.Dir)
	report, err := faults.Run(ctx, f.config)
	if err != nil {
		err = fmt.Errorf("seed %d: %w\nLogs and data are in %s", f.config.Seed, err, f.config.Dir)
	}
	report.Version, report.Revision = f.version, f.revision
	if f.out != "" && worthKeeping(ctx, report) {
		err = errors.Join(err, appendLine(f.out, report))
	}
	if err == nil && len(report.Violations) == 0 && !f.keep {
		err = os.RemoveAll(f.config.Dir)
	}
	return report, err
}

// worthKeeping reports whether a run's report is stored. Every run that had a
// cluster counts, finished or not, except one that was interrupted before a
// violation.
func worthKeeping(ctx context.Context, report faults.Report) bool {
	return !report.Began.IsZero() && (ctx.Err() == nil || len(report.Violations) > 0)
}

// appendLine appends value to a file as one line of JSON.
func appendLine(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644) //nolint:gosec // Everybody may read it.
	if err != nil {
		return err
	}
	_, err = file.Write(append(data, '\n'))
	return errors.Join(err, file.Sync(), file.Close())
}

// show prints a run and returns an error if it has violations.
func (f *faultsFlags) show(w io.Writer, report faults.Report) error {
	if f.jsonOutput {
		if err := cli.PrintJSON(w, report); err != nil {
			return err
		}
	} else if err := printFaultRuns(w, faultRuns{reports: []faults.Report{report}}); err != nil {
		return err
	}
	if len(report.Violations) == 0 {
		return nil
	}
	return fmt.Errorf("%w: seed %d, %d violations\nLogs and data are in %s",
		errViolated, report.Seed, len(report.Violations), f.config.Dir)
}
