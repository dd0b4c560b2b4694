package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
)

// newGPU returns the command berth gpu.
func newGPU() *cobra.Command {
	return parent("gpu", "Find the GPU for the work", newRecommend(), newTypes())
}

// recommendFlags are the flags of berth gpu recommend.
type recommendFlags struct {
	conn       connection
	code       codeFlags
	objective  string
	types      []string
	jsonOutput bool
}

// newRecommend returns the command berth gpu recommend.
func newRecommend() *cobra.Command {
	f := &recommendFlags{}
	cmd := &cobra.Command{
		Use:   "recommend {FILE | - | -c CODE}",
		Short: "Execute the same code on several GPU types and say which is best",
		Long: `Recommend executes the code once on every GPU type (or on those asked for), shows
how far each is, and prints what each took: seconds, credits, and whether no
other type is both faster and cheaper. Code that prints lines such as
BERTH_PROGRESS 37/100 has its progress shown.

` + exitHelp,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.conn.register(cmd)
	f.code.register(cmd)
	flags := cmd.Flags()
	registerObjective(flags, &f.objective)
	flags.StringSliceVar(&f.types, "gpu-types", nil, "GPU `types` to try, by comma (default: every type there is)")
	flags.BoolVar(&f.jsonOutput, "json", false, "print the result as JSON")
	return cmd
}

// registerObjective adds the flag that says what is best.
func registerObjective(flags *pflag.FlagSet, objective *string) {
	flags.StringVar(objective, "objective", compute.ObjectiveBalanced.String(),
		"what is best: `balanced`, fastest or cheapest")
}

func (f *recommendFlags) run(cmd *cobra.Command, args []string) error {
	start, err := f.code.start(cmd, args)
	if err != nil {
		return err
	}
	c, err := f.conn.client(cmd)
	if err != nil {
		return err
	}
	started, err := c.SubmitSelection(cmd.Context(), client.StartSelection{
		Start: start, GPUTypes: f.types, Objective: f.objective,
	})
	if err != nil {
		return unexecuted(err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "berth: execution %s\n", started.ExecutionID)
	result, err := watch(cmd, c, started.ExecutionID)
	if err != nil {
		return interrupted(cmd.Context(), started.ExecutionID, err)
	}
	if f.jsonOutput {
		err = printJSON(cmd.OutOrStdout(), result)
	} else {
		err = printSelection(cmd.OutOrStdout(), result)
	}
	if err != nil {
		return err
	}
	return selectionOutcome(cmd.Context(), c, result)
}

// selectionOutcome returns a GPU selection that has ended as the end of a
// command. When every type failed with the same code, that is the exit code.
func selectionOutcome(ctx context.Context, c *client.Client, s wire.Selection) error {
	if s.Status == compute.StatusCompleted {
		return nil
	}
	parent, err := c.Execution(ctx, s.ExecutionID, 0)
	if err != nil {
		return unexecuted(err)
	}
	ended := outcome(&parent)
	e, ok := errors.AsType[*exit](ended)
	if !ok || s.Status != compute.StatusFailed || len(s.Rows) == 0 {
		return ended
	}
	code := s.Rows[0].ReturnCode
	for _, row := range s.Rows {
		if code == nil || row.ReturnCode == nil || *row.ReturnCode != *code || *code == 0 {
			return ended
		}
	}
	return &exit{code: *code, err: e.err}
}

// newTypes returns the command berth gpu types.
func newTypes() *cobra.Command {
	conn := &connection{}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "types",
		Short: "List what hardware there is and what it costs",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.client(cmd)
			if err != nil {
				return err
			}
			types, err := c.MachineTypes(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), types)
			}
			t := newTable("profile", "gpus", "vram gb", "vcpu", "memory gb", "credits/hour", "free", "all")
			for _, m := range types {
				t.AppendRow(row(
					m.HardwareProfile, m.GPUCount, m.VRAMGB, m.VCPU, m.MemoryGB,
					m.PricePerHour, m.Available, m.Total,
				))
			}
			return printTable(cmd.OutOrStdout(), t)
		},
	}
	conn.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
