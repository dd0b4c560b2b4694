package admin

import (
	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
	"berth/compute"
)

// newGrant returns the command berth admin grant.
func newGrant(conn *cli.Connection) *cobra.Command {
	var org, credits, reason string
	cmd := &cobra.Command{
		Use:   "grant",
		Short: "Grant credits to an organization",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			amount, err := compute.ParseCredits(credits)
			if err != nil {
				return cli.UsageErrorf("--credits: %w", err)
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			return c.Grant(cmd.Context(), org, amount, reason)
		},
	}
	cmd.Flags().StringVar(&org, "org", "", "`slug` of the organization")
	cmd.Flags().StringVar(&credits, "credits", "", "`credits` to grant")
	cmd.Flags().StringVar(&reason, "reason", "", "`text` for its ledger")
	return cli.NeedFlags(cmd, "org", "credits")
}
