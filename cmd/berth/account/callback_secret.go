package account

import (
	"fmt"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
)

// newOrgCallbackSecret returns the command berth orgs callback-secret.
func newOrgCallbackSecret(conn *cli.Connection) *cobra.Command {
	list := newCallbackSecretList(conn)
	cmd := cli.Parent("callback-secret", "Have callbacks signed, so that receivers can check them",
		list, newCallbackSecretSet(conn), newCallbackSecretRemove(conn))
	cmd.Long = `With a secret, the callbacks of the organization have a webhook-signature as Standard
Webhooks says, which its libraries check. Admins and owners set, rotate and remove it.`
	cmd.Example = `  berth orgs callback-secret set > secret.txt
  berth orgs callback-secret list`
	return cmd
}

// inOrg calls do with a client and the slug of the organization that the caller acts in.
func inOrg(
	conn *cli.Connection, do func(cmd *cobra.Command, c *client.Client, slug string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		c, err := conn.Client(cmd)
		if err != nil {
			return err
		}
		slug, err := slugOf(cmd, c)
		if err != nil {
			return err
		}
		return do(cmd, c, slug)
	}
}

// newCallbackSecretList returns the command berth orgs callback-secret list.
func newCallbackSecretList(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the secrets that sign callbacks, without their values",
		Example: `  berth orgs callback-secret list --json`, Args: cli.Arguments(cobra.NoArgs),
		RunE: inOrg(conn, func(cmd *cobra.Command, c *client.Client, slug string) error {
			secrets, err := c.CallbackSecrets(cmd.Context(), slug)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), append([]wire.CallbackSecret{}, secrets...))
			}
			t := cli.NewTable("number", "created", "ends")
			for _, s := range secrets {
				t.AppendRow(cli.Row(s.Number, day(&s.CreatedAt), day(s.ExpiresAt)))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newCallbackSecretSet returns the command berth orgs callback-secret set.
func newCallbackSecretSet(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "set", Short: "Make a new secret and print it, this once",
		Long: `Set has callbacks signed by a new secret, which is printed. It is not shown again. The
secret before it signs them too for a day, so that receivers can be changed meanwhile.`,
		Example: `  berth orgs callback-secret set > secret.txt`, Args: cli.Arguments(cobra.NoArgs),
		RunE: inOrg(conn, func(cmd *cobra.Command, c *client.Client, slug string) error {
			keep, err := cli.OpenSecret(cmd, "callback secret", "-")
			if err != nil {
				return err
			}
			made, err := c.SetCallbackSecret(cmd.Context(), slug)
			if err != nil {
				return err
			}
			if asJSON {
				return keep.Show(made.Secret, cli.PrintJSON(cmd.OutOrStdout(), made))
			}
			if err := keep.Keep(made.Secret); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(),
				"berth: callbacks of %s are signed by secret %d, which is not shown again\n", slug, made.Number)
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newCallbackSecretRemove returns the command berth orgs callback-secret rm.
func newCallbackSecretRemove(conn *cli.Connection) *cobra.Command {
	return cli.Reporting(&cobra.Command{
		Use: "rm", Short: "Remove the secrets: callbacks are not signed from then on",
		Example: `  berth orgs callback-secret rm`, Args: cli.Arguments(cobra.NoArgs),
		RunE: inOrg(conn, func(cmd *cobra.Command, c *client.Client, slug string) error {
			if err := c.RemoveCallbackSecret(cmd.Context(), slug); err != nil {
				return err
			}
			cli.Report(cmd, cli.Done{Name: slug, Done: "callback secrets removed"},
				"callbacks of %s are not signed any more", slug)
			return nil
		}),
	})
}
