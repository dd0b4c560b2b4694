//go:build !client

package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
	"berth/node/repair"
)

// NewLedger returns the command berth ledger.
func NewLedger() *cobra.Command {
	return cli.Parent("ledger", "Verify ledgers offline", newLedgerVerify())
}

// newLedgerVerify returns the command berth ledger verify.
func newLedgerVerify() *cobra.Command {
	var earlier string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify BACKUP",
		Short: "Verify the ledgers in a backup",
		Long: `Verify reads a backup, without a cluster, and verifies its checksums, the hash chain of
each organization's ledger, and that the lines add up to the balances. With --earlier it
also checks that each ledger continues the one in an earlier backup: that finds a ledger
which was rewritten.`,
		Example: `  berth ledger verify backups/berth-2026-11-01.bak
  berth ledger verify new.bak --earlier old.bak`,
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ledgers, err := repair.VerifyLedgers(args[0], earlier)
			if err != nil {
				return err
			}
			if err := printLedgers(cmd, ledgers, asJSON); err != nil {
				return err
			}
			for i := range ledgers {
				if ledgers[i].Fault != "" {
					return fmt.Errorf("%s", ledgers[i].Fault)
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&earlier, "earlier", "", "`file` with an earlier backup, whose ledgers must continue")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printLedgers(cmd *cobra.Command, ledgers []repair.Ledger, asJSON bool) error {
	if asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), ledgers)
	}
	t := cli.NewTable("organization", "lines", "balance", "held", "head", "valid")
	for i := range ledgers {
		l := &ledgers[i]
		valid := "yes"
		if l.Fault != "" {
			valid = "NO"
		}
		t.AppendRow(cli.Row(l.Org, l.Lines, l.Balance, l.Held, l.Hash[:16], valid))
	}
	return cli.PrintTable(cmd.OutOrStdout(), t)
}
