package admin

import (
	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
)

// newGrant returns the command berth admin grant.
func newGrant(conn *cli.Connection) *cobra.Command {
	var org, credits, reason string
	cmd := &cobra.Command{
		Use:   "grant",
		Short: "Grant credits to an organization",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			amount, err := cli.Amount("credits", credits)
			if err != nil {
				return err
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			if err := c.Grant(cmd.Context(), org, amount, reason); err != nil {
				return err
			}
			cli.Report(cmd, cli.Done{Name: org, Done: "granted"}, "%s has %s more credits", org, amount)
			return nil
		},
	}
	cmd.Flags().StringVar(&org, "org", "", "`slug` of the organization")
	cmd.Flags().StringVar(&credits, "credits", "", "`credits` to grant")
	cmd.Flags().StringVar(&reason, "reason", "", "`text` for its ledger")
	return cli.NeedFlags(cli.Reporting(cmd), "org", "credits")
}
