package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
)

// psFlags are the flags of berth ps.
type psFlags struct {
	conn       cli.Connection
	all        bool
	limit      int
	jsonOutput bool
}

// newPs returns the command berth ps.
func newPs() *cobra.Command {
	f := &psFlags{}
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List executions",
		Long:  "Ps lists the executions that have not ended, newest first; -a includes those that have.",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.conn.Register(cmd)
	cmd.Flags().BoolVarP(&f.all, "all", "a", false, "include executions that have ended")
	cmd.Flags().IntVarP(&f.limit, "limit", "n", 50, "with -a: list at most this many")
	cmd.Flags().BoolVar(&f.jsonOutput, "json", false, "print JSON")
	return cmd
}

func (f *psFlags) run(cmd *cobra.Command) error {
	c, err := f.conn.Client(cmd)
	if err != nil {
		return err
	}
	list, err := f.list(cmd, c)
	if err != nil {
		return err
	}
	if f.jsonOutput {
		return cli.PrintJSON(cmd.OutOrStdout(), list)
	}
	t := cli.NewTable("id", "kind", "profile", "status", "why", "age", "node", "credits", "name")
	now := time.Now() //nolint:forbidigo // For a person's eyes.
	for _, e := range list {
		node := "-"
		if e.Metadata != nil {
			node = cli.OrNone(e.Metadata.Node)
		}
		t.AppendRow(cli.Row(
			e.ExecutionID, e.ExecutionType, e.HardwareProfile, e.Status, reasonOf(e),
			ago(now, e.CreatedAt.Time()), node, cli.OrNone(e.Billed), cli.OrNone(cmp.Or(e.Name, e.FileName)),
		))
	}
	return cli.PrintTable(cmd.OutOrStdout(), t)
}

func (f *psFlags) list(cmd *cobra.Command, c *client.Client) ([]wire.ExecutionSummary, error) {
	if !f.all {
		return c.Workloads(cmd.Context())
	}
	history, err := c.History(cmd.Context(), client.HistoryQuery{Limit: f.limit})
	return history.Executions, err
}

// reasonOf returns why an execution waits or has ended, and its retries.
func reasonOf(e wire.ExecutionSummary) string {
	why := cli.OrNone(e.StatusDetails)
	if e.Retries > 0 {
		why += fmt.Sprintf(" (retry %d of %d)", e.Retries, e.MaxRetries)
	}
	return why
}

// ago returns the time since t, in one unit.
func ago(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
