package execution

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/inspect"
	"berth/compute"
)

// NewGPU returns the command berth gpu.
func NewGPU() *cobra.Command {
	return cli.Parent("gpu", "Find the GPU for the work", newRecommend(), newTypes())
}

// recommendFlags are the flags of berth gpu recommend.
type recommendFlags struct {
	conn       cli.Connection
	code       codeFlags
	objective  string
	types      []string
	repeats    int
	deadline   time.Duration
	complete   bool
	format     string
	jsonOutput bool
}

// newRecommend returns the command berth gpu recommend.
func newRecommend() *cobra.Command {
	f := &recommendFlags{}
	cmd := &cobra.Command{
		Use:   "recommend " + programUse,
		Short: "Run the same code on several GPU types and recommend one",
		Long: `Recommend runs the code on every GPU type (or on those named), shows their progress,
and prints the seconds and credits that each took, and whether no other type is both
faster and cheaper.

Code that prints lines such as BERTH_PROGRESS 37/100 has its progress shown. A type
that can no longer win is stopped early: for fastest one that is certain to be slower
than a completed one, for cheapest one that is certain to cost more, for balanced one
that is both. --no-early-stop runs every type to its end.

With --repeats each type executes the code several times, one after the other,
and medians are compared. With --deadline what has no capacity by then is left
out, and once a type has completed what still runs is stopped; without it a type
waits for capacity for an hour, or a minute once all others have ended.

--max-credits is a ceiling on the whole, all types and repeats together. The
confidence is the probability that the recommended type is really the best.

` + programHelp + `
` + cli.ExitHelp,
		Args: cli.Arguments(programArgs),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.conn.Register(cmd)
	f.code.register(cmd)
	flags := cmd.Flags()
	RegisterObjective(flags, &f.objective)
	flags.StringSliceVar(&f.types, "gpu-types", nil, "comma-separated GPU `types` to try (default: all)")
	flags.IntVar(&f.repeats, "repeats", 1, fmt.Sprintf("`runs` of each GPU type, 1 to %d", compute.MaxRepeats))
	flags.DurationVar(&f.deadline, "deadline", 0,
		"time limit for the answer, such as `90s` (default: until all have ended)")
	flags.BoolVar(&f.complete, "no-early-stop", false, "run every type to its end, even if it cannot win")
	flags.StringVar(&f.format, "format", formatTable, "print a `table`, json, csv or svg (a chart)")
	flags.BoolVar(&f.jsonOutput, "json", false, "the same as --format json")
	cmd.MarkFlagsMutuallyExclusive("json", "format")
	return cmd
}

// Formats of a result.
const (
	formatTable = "table"
	formatJSON  = "json"
)

// check refuses invalid flags before anything is submitted.
func (f *recommendFlags) check() error {
	if f.jsonOutput {
		f.format = formatJSON
	}
	switch {
	case !slices.Contains([]string{formatTable, formatJSON, "csv", "svg"}, f.format):
		return cli.UsageErrorf("--format is table, json, csv or svg, not %q", f.format)
	case f.repeats < 1 || f.repeats > compute.MaxRepeats:
		return cli.UsageErrorf("--repeats is 1 to %d, not %d", compute.MaxRepeats, f.repeats)
	case f.deadline != 0 && (f.deadline < time.Second || f.deadline > compute.MaxDeadline):
		return cli.UsageErrorf("--deadline is 1s to %s, not %s", compute.MaxDeadline, f.deadline)
	}
	return nil
}

// request returns the request that the flags describe.
func (f *recommendFlags) request(start client.Start) client.StartSelection {
	start.GPUTypes = f.types
	out := client.StartSelection{
		Start: start, Objective: f.objective,
		DeadlineSeconds: int(f.deadline.Round(time.Second) / time.Second),
	}
	if f.repeats > 1 {
		out.Repeats = f.repeats
	}
	if f.complete {
		stop := false
		out.EarlyStop = &stop
	}
	return out
}

// RegisterObjective adds the flag for the objective.
func RegisterObjective(flags *pflag.FlagSet, objective *string) {
	flags.StringVar(objective, "objective", compute.ObjectiveBalanced.String(),
		"objective: `balanced`, fastest or cheapest")
}

func (f *recommendFlags) run(cmd *cobra.Command, args []string) error {
	if err := f.check(); err != nil {
		return err
	}
	start, tree, err := f.code.start(cmd, args)
	if err != nil {
		return err
	}
	c, err := f.conn.Client(cmd)
	if err != nil {
		return err
	}
	if start.BundleID, err = sendTree(cmd, c, tree); err != nil {
		return inspect.Unexecuted(err)
	}
	started, err := c.SubmitSelection(cmd.Context(), f.request(start))
	if err != nil {
		return inspect.Unexecuted(err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "berth: execution %s\n", started.ExecutionID)
	result, err := Watch(cmd, c, started.ExecutionID)
	if err != nil {
		return inspect.Interrupted(cmd.Context(), started.ExecutionID, err)
	}
	if err := f.print(cmd, c, result); err != nil {
		return err
	}
	return selectionOutcome(cmd.Context(), c, result)
}

// print writes the result in the chosen format.
func (f *recommendFlags) print(cmd *cobra.Command, c *client.Client, result wire.Selection) error {
	switch f.format {
	case formatTable:
		return PrintSelection(cmd.OutOrStdout(), result)
	case formatJSON:
		return cli.PrintJSON(cmd.OutOrStdout(), result)
	}
	raw, err := c.SelectionAs(cmd.Context(), result.ExecutionID, f.format)
	if err == nil {
		_, err = cmd.OutOrStdout().Write(raw)
	}
	return err
}

// selectionOutcome returns the command's error for an ended GPU selection. If
// every type failed with the same exit code, that is the command's.
func selectionOutcome(ctx context.Context, c *client.Client, s wire.Selection) error {
	if s.Status == compute.StatusCompleted {
		return nil
	}
	parent, err := c.Execution(ctx, s.ExecutionID, 0)
	if err != nil {
		return inspect.Unexecuted(err)
	}
	ended := inspect.Outcome(&parent)
	e, ok := errors.AsType[*cli.ExitError](ended)
	if !ok || s.Status != compute.StatusFailed || len(s.Rows) == 0 {
		return ended
	}
	// A stopped candidate shows nothing about the code.
	rows := slices.DeleteFunc(slices.Clone(s.Rows), func(r wire.SelectionRow) bool {
		return r.Status == compute.StatusCancelled
	})
	if len(rows) == 0 {
		return ended
	}
	code := rows[0].ReturnCode
	for _, row := range rows {
		if code == nil || row.ReturnCode == nil || *row.ReturnCode != *code || *code == 0 {
			return ended
		}
	}
	return &cli.ExitError{Code: *code, Err: e.Err}
}

// newTypes returns the command berth gpu types.
func newTypes() *cobra.Command {
	conn := &cli.Connection{}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "types",
		Short: "List the available hardware and its prices",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			types, err := c.MachineTypes(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), types)
			}
			t := cli.NewTable("profile", "gpus", "vram gb", "vcpu", "memory gb", "credits/hour", "free", "all")
			for _, m := range types {
				t.AppendRow(cli.Row(
					m.HardwareProfile, m.GPUCount, m.VRAMGB, m.VCPU, m.MemoryGB,
					m.PricePerHour, m.Available, m.Total,
				))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	conn.Register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
