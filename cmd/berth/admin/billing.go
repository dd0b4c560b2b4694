package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"berth/api/wire"
	"berth/cmd/berth/cli"
)

// newBilling returns the command berth admin billing.
func newBilling(conn *cli.Connection) *cobra.Command {
	return cli.Parent("billing", "Control the enforcement of credits", newBillingMode(conn))
}

func newBillingMode(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "mode [enforce | meter]",
		Short: "Show or set whether credits are enforced",
		Long: `Mode shows whether credits are enforced, and changes it when it is given a mode. meter
counts credits and refuses nobody: balances may become negative. enforce refuses work
that the credits of its organization do not pay for; running work is stopped when its
hold has to be extended and cannot be. A new cluster has the mode of billing.mode.`,
		Args:      cli.Arguments(cobra.MaximumNArgs(1)),
		ValidArgs: []string{"enforce", "meter"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] != "enforce" && args[0] != "meter" {
				return cli.UsageErrorf("%q is neither enforce nor meter", args[0])
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			var mode wire.BillingMode
			if len(args) == 1 {
				mode, err = c.SetBillingMode(cmd.Context(), args[0])
			} else {
				mode, err = c.BillingMode(cmd.Context())
			}
			if err != nil || asJSON {
				return printOr(cmd, mode, err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), mode.Mode)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
