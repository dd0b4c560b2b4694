package inspect

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// NewShow returns the command berth show.
func NewShow() *cobra.Command {
	conn := &cli.Connection{}
	var asJSON, code bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show everything about an execution",
		Long: `Show prints the record of an execution: its status, where and when it ran, what it used
and cost, and its attempts. berth logs shows its output, berth explain why it waits.`,
		Args:              cli.Arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: CompleteExecutions(conn, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := clientAndExecution(cmd, conn, args[0])
			if err != nil {
				return err
			}
			e, err := c.Execution(cmd.Context(), id, 0)
			switch {
			case err != nil:
				return err
			case code:
				_, err := fmt.Fprint(cmd.OutOrStdout(), e.Code)
				return err
			case asJSON:
				return cli.PrintJSON(cmd.OutOrStdout(), e)
			}
			return printExecution(cmd, &e)
		},
	}
	conn.Register(cmd)
	cmd.Flags().BoolVar(&code, "code", false, "print only its code")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.MarkFlagsMutuallyExclusive("code", "json")
	return cmd
}

// printExecution prints what is known of an execution, without its output.
func printExecution(cmd *cobra.Command, e *wire.Execution) error {
	t := cli.NewTable()
	row := func(name, value string) {
		if value != "" && value != "-" {
			t.AppendRow(cli.Row(name, value))
		}
	}
	row("execution", e.ExecutionID.String())
	row("kind", e.ExecutionType.String())
	row("status", describeStatus(e))
	row("errors", strings.Join(e.Errors, "; "))
	row("warnings", strings.Join(e.Warnings, "; "))
	row("exit code", cli.OrNone(e.ReturnCode))
	row("file", cli.OrNone(e.FileName))
	row("profile", e.HardwareProfile)
	if m := e.Metadata; m != nil {
		row("node", cli.OrNone(m.Node))
		row("gpus", joinGPUs(m.GPUs))
		row("tags", strings.Join(m.Tags, " "))
	}
	row("created", e.CreatedAt.String())
	row("started", cli.OrNone(e.StartTime))
	row("ended", cli.OrNone(e.EndTime))
	row("time limit", fmt.Sprintf("%d s", e.Timeout))
	row("priority", fmt.Sprint(e.Priority))
	row("network", e.Network.String())
	row("parent", cli.OrNone(e.ParentExecutionID))
	row("credits", cli.OrNone(e.Billed))
	row("ceiling", cli.OrNone(e.MaxCredits))
	if e.StartTime != nil {
		row("used", describeUsage(e.Usage))
	}
	if err := cli.PrintTable(cmd.OutOrStdout(), t); err != nil || len(e.Attempts) == 0 {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout())
	attempts := cli.NewTable("attempt", "node", "status", "placed", "ended", "why")
	for _, a := range e.Attempts {
		attempts.AppendRow(cli.Row(a.Attempt, a.Node, a.Status, a.PlacedAt, cli.OrNone(a.EndedAt), cli.OrNone(a.Reason)))
	}
	return cli.PrintTable(cmd.OutOrStdout(), attempts)
}

// describeStatus returns the status with its reason and retries.
func describeStatus(e *wire.Execution) string {
	text := e.Status.String()
	if why := reasonOf(e.ExecutionSummary); why != "-" {
		text += " (" + why + ")"
	}
	return text
}

func joinGPUs(ids []compute.GPUID) string {
	var texts []string
	for _, id := range ids {
		texts = append(texts, string(id))
	}
	return strings.Join(texts, " ")
}

// describeUsage describes the use of hardware by an execution.
func describeUsage(u wire.Usage) string {
	text := fmt.Sprintf("%.2f s of CPU, at most %d MiB of memory", u.CPUSeconds, u.PeakMemoryMiB)
	if u.GPUUtilPercent != nil {
		text += fmt.Sprintf(", GPU at %d %%", *u.GPUUtilPercent)
	}
	if u.GPUMemoryMiB != nil {
		text += fmt.Sprintf(", at most %d MiB of GPU memory", *u.GPUMemoryMiB)
	}
	return text
}
