package benchcmd

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"berth/bench/faults/sweep"
	"berth/cmd/berth/cli"
	"berth/fault"
)

// failpointsFlags are the flags of berth bench failpoints.
type failpointsFlags struct {
	config     sweep.Config
	keep       bool
	jsonOutput bool
}

// newFailpoints returns the command berth bench failpoints.
func newFailpoints() *cobra.Command {
	f := &failpointsFlags{}
	cmd := &cobra.Command{
		Use:   "failpoints",
		Short: "Crash a node at every failpoint and check that nothing acknowledged is lost",
		Long: `Failpoints starts a cluster of three berth processes and goes through all failpoints:
one node crashes there, or the step fails, while clients submit. Then the node is
started again and everything is checked: acknowledged requests are kept, repeats get
the first answer, no code started twice, the ledger adds up, and all replicas agree.
It needs root, and a berth built with -tags faults.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.config.Points, "only", nil, "test only these `points`")
	flags.BoolVar(&f.config.Exits, "exits", false, "only crash at failpoints, inject no errors")
	flags.StringVar(&f.config.Binary, "binary", "", "the berth `program` of the nodes (default: this one)")
	flags.StringVar(&f.config.Dir, "dir", "", "`directory` for logs and data (default: a temporary one)")
	flags.BoolVar(&f.keep, "keep", false, "keep the directory even if nothing was wrong")
	flags.BoolVar(&f.jsonOutput, "json", false, "print JSON")
	return cmd
}

func (f *failpointsFlags) run(cmd *cobra.Command) error {
	if f.config.Binary == "" {
		if !fault.Enabled {
			return cli.UsageErrorf("this berth has no failpoints: build one with -tags faults, and name it with --binary")
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		f.config.Binary = self
	}
	if f.config.Dir == "" {
		dir, err := os.MkdirTemp("", "berth-failpoints-")
		if err != nil {
			return err
		}
		f.config.Dir = dir
	}
	f.config.Progress = cmd.ErrOrStderr()
	report, err := sweep.Run(cmd.Context(), f.config)
	if err != nil {
		return fmt.Errorf("%w\nLogs and data are in %s", err, f.config.Dir)
	}
	if err := f.show(cmd.OutOrStdout(), &report); err != nil {
		return err
	}
	if len(report.Violations) > 0 {
		return fmt.Errorf("%w: logs and data are in %s", errViolated, f.config.Dir)
	}
	if f.keep {
		return nil
	}
	return os.RemoveAll(f.config.Dir)
}

// show prints the report.
func (f *failpointsFlags) show(out io.Writer, report *sweep.Report) error {
	if f.jsonOutput {
		return cli.PrintJSON(out, report)
	}
	_, err := fmt.Fprintf(out, "%d trials in %.0f s: %d submits, code started %d times, %d violations\n",
		len(report.Results), report.Seconds, report.Submits, report.Starts, len(report.Violations))
	for _, v := range report.Violations {
		_, e := fmt.Fprintln(out, v)
		err = errors.Join(err, e)
	}
	return err
}
