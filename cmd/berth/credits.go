package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
)

// ledgerPage is how many lines of the ledger are asked for at a time.
const ledgerPage = 1000

// newCredits returns the command berth credits.
func newCredits() *cobra.Command {
	conn := &cli.Connection{}
	var asJSON bool
	cmd := cli.Parent("credits", "Show the credits of your organization", newLedger(conn))
	cmd.Long = `Credits shows what the organization can spend, what is held for executions that have not
ended, and what was used. berth credits ledger lists every grant, hold and charge.`
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := conn.Client(cmd)
		if err != nil {
			return err
		}
		credits, err := c.Credits(cmd.Context())
		if err != nil {
			return err
		}
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), credits)
		}
		t := cli.NewTable()
		t.AppendRow(cli.Row("available", credits.Available))
		t.AppendRow(cli.Row("held", credits.Held))
		t.AppendRow(cli.Row("used this month", credits.Used))
		t.AppendRow(cli.Row("used in all", credits.TotalUsed))
		return cli.PrintTable(cmd.OutOrStdout(), t)
	}
	conn.Register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newLedger returns the command berth credits ledger.
func newLedger(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use: "ledger", Short: "List the ledger of the organization, newest last",
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return cli.UsageErrorf("--limit: must be at least 1")
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			lines, err := lastLines(cmd, c, limit)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), lines)
			}
			t := cli.NewTable("#", "at", "kind", "amount", "balance", "held", "execution", "note")
			for _, l := range lines {
				execution := cli.OrNone(l.ExecutionID)
				if l.ExecutionID != nil {
					execution = cli.ShortID(cmd, *l.ExecutionID)
				}
				t.AppendRow(cli.Row(l.Seq, l.At.Time().Format("2006-01-02 15:04:05"), l.Kind, l.Amount, l.Balance, l.Held,
					execution, cli.OrNone(l.Note)))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 50, "list at most this many lines, the newest")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// lastLines returns the newest lines of the ledger. The API lists them oldest
// first.
func lastLines(cmd *cobra.Command, c *client.Client, limit int) ([]wire.LedgerEntry, error) {
	lines := []wire.LedgerEntry{}
	for cursor := uint64(0); ; {
		page, err := c.Ledger(cmd.Context(), cursor, ledgerPage)
		if err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
		lines = append(lines, page.Entries...)
		lines = lines[max(0, len(lines)-limit):]
		if page.NextCursor == nil {
			return lines, nil
		}
		cursor = *page.NextCursor
	}
}
