package inspect

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"berth/api/wire"
	"berth/cmd/berth/cli"
)

// NewWhatIf returns the command berth whatif.
func NewWhatIf() *cobra.Command {
	conn := &cli.Connection{Operator: true}
	var question wire.WhatIf
	var now, asJSON bool
	cmd := &cobra.Command{
		Use:   "whatif",
		Short: "Show what would start if nodes were added, removed or drained",
		Long: `Whatif asks the scheduler what it would do with the queue on other nodes. It changes
nothing.

  berth whatif --add 'h100:8 x2' --drain n3
  berth whatif --index 4711 --remove n1 --execution ID`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if now && question.Index > 0 {
				return cli.UsageErrorf("--now and --index exclude each other")
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			answer, err := c.WhatIf(cmd.Context(), question)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), answer)
			}
			return printWhatIf(cmd.OutOrStdout(), answer)
		},
	}
	conn.Register(cmd)
	flags := cmd.Flags()
	flags.Uint64Var(&question.Index, "index", 0, "the state after this Raft `index`")
	flags.BoolVar(&now, "now", false, "the state of now (the default)")
	flags.StringArrayVar(&question.Add, "add", nil, "`nodes` to add, such as 'h100:8 x2', 'h100:4,l40s:4' or cpu:16")
	flags.StringArrayVar(&question.Remove, "remove", nil, "`node` to leave out, with what executes there")
	flags.StringArrayVar(&question.Drain, "drain", nil, "`node` that takes no new work")
	flags.StringVar(&question.Execution, "execution", "", "show only the execution with this `id`")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printWhatIf writes which executions would start and which would wait.
func printWhatIf(w io.Writer, a wire.WhatIfAnswer) error {
	_, err := fmt.Fprintf(w, "At index %d with %d nodes: %d would start (%d without the change), %d would wait, "+
		"%d live attempts lost.\n",
		a.Index, a.Nodes, a.Starts, a.StartsNow, a.Waits, a.Lost)
	if err != nil || len(a.Started)+len(a.Waiting) == 0 {
		return err
	}
	t := cli.NewTable("execution", "would", "gpus")
	for _, s := range a.Started {
		t.AppendRow(cli.Row(s.ExecutionID, "start on "+s.Node, len(s.GPUs)))
	}
	for _, s := range a.Waiting {
		t.AppendRow(cli.Row(s.ExecutionID, "wait: "+s.Reason, "-"))
	}
	return cli.PrintTable(w, t)
}
