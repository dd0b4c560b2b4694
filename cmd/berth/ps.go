package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
)

// psFlags are the flags of berth ps.
type psFlags struct {
	conn       connection
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
		Args:  arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.conn.register(cmd)
	cmd.Flags().BoolVarP(&f.all, "all", "a", false, "include executions that have ended")
	cmd.Flags().IntVarP(&f.limit, "limit", "n", 50, "with -a: list at most this many")
	cmd.Flags().BoolVar(&f.jsonOutput, "json", false, "print JSON")
	return cmd
}

func (f *psFlags) run(cmd *cobra.Command) error {
	c, err := f.conn.client(cmd)
	if err != nil {
		return err
	}
	list, err := f.list(cmd, c)
	if err != nil {
		return err
	}
	if f.jsonOutput {
		return printJSON(cmd.OutOrStdout(), list)
	}
	t := newTable("id", "kind", "profile", "status", "why", "age", "node", "credits", "file")
	now := time.Now() //nolint:forbidigo // For a person's eyes.
	for _, e := range list {
		node := "-"
		if e.Metadata != nil {
			node = orNone(e.Metadata.Node)
		}
		t.AppendRow(row(
			e.ExecutionID, e.ExecutionType, e.HardwareProfile, e.Status, reasonOf(e),
			ago(now, e.CreatedAt.Time()), node, orNone(e.Billed), orNone(e.FileName),
		))
	}
	return printTable(cmd.OutOrStdout(), t)
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
	why := orNone(e.StatusDetails)
	if e.Retries > 0 {
		why += fmt.Sprintf(" (retry %d of %d)", e.Retries, e.MaxRetries)
	}
	return why
}
