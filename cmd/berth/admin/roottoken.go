package admin

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
)

// newRootTokenRotate returns the command berth admin root-token rotate.
func newRootTokenRotate(conn *cli.Connection) *cobra.Command {
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the root token",
		Long: `Replace the cluster's root token. Every node refuses the one before from the next
request on, and the new one is shown this once. The file root_token in a data
directory keeps the first one, which opens nothing then. For a cluster of berth dev,
write the new one to DIR/root_token, from where it goes to DIR/cluster.json.

The file of --out is on the disk before the old token ends. If the new one cannot be
written all the same, it is shown on standard error. If the answer is lost, nobody has
the new token: a user who is an operator can rotate it again, so make one before (berth
admin user create --operator).`,
		Example: `  berth admin root-token rotate --out new_root_token`,
		Args:    cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			keep, err := cli.OpenSecret(cmd, "root token", out) // Before the old token ends.
			if err != nil {
				return err
			}
			made, err := c.RotateRootToken(cmd.Context())
			if err != nil {
				return errors.Join(err, keep.Drop())
			}
			if asJSON && out == "-" {
				return keep.Show(made.RootToken, cli.PrintJSON(cmd.OutOrStdout(), made))
			}
			if err := keep.Keep(made.RootToken); err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), cli.Done{Name: "root token", Done: "replaced"})
			}
			_, err = fmt.Fprintln(cmd.ErrOrStderr(), "berth: the root token was replaced")
			return err
		},
	}
	cmd.Flags().StringVar(&out, "out", "",
		"`file` to write the token to, readable only by you; - for standard output")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: the token too, with --out -")
	return cli.NeedFlags(cmd, "out")
}
