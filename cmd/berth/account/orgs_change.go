package account

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
)

// newOrgCreate returns the command berth orgs create.
func newOrgCreate(conn *cli.Connection) *cobra.Command {
	var slug string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make an organization that you own",
		Long: `Create makes an organization whose owner you are. It has no credits until an operator
grants some, which a cluster that only meters does not need.`,
		Example: `  berth orgs create "Vision lab"
  berth orgs create "Vision lab" --slug vision`,
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			o, err := c.CreateOrg(cmd.Context(), wire.NewOrg{Name: args[0], Slug: slug})
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), o)
			}
			how := "berth orgs use " + o.Slug + " acts there"
			if orgs, err := c.Orgs(cmd.Context()); err == nil && !hasOrg(orgs, o.Slug) {
				how = "an API key acts in its own organization only: sign in with berth login to act there"
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "berth: the organization %s is yours; %s\n", o.Slug, how)
			return err
		},
	}
	cmd.Flags().StringVar(&slug, "slug", "", "`name` in paths and commands; made from NAME when absent")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// hasOrg reports whether an organization is in a list.
func hasOrg(orgs []wire.Org, slug string) bool {
	return slices.ContainsFunc(orgs, func(o wire.Org) bool { return o.Slug == slug })
}

// orgError explains that an organization was not found.
func orgError(err error, slug string) error {
	if of, ok := errors.AsType[*client.Error](err); ok && of.Status == http.StatusNotFound {
		return fmt.Errorf(
			"you are not a member of %q, or act with an API key, which is for one organization: see berth orgs", slug)
	}
	return err
}

// newOrgSet returns the command berth orgs set.
func newOrgSet(conn *cli.Connection) *cobra.Command {
	var change wire.OrgChange
	var asJSON bool
	cmd := &cobra.Command{
		Use: "set SLUG", Short: "Change the name, slug or billing address of an organization",
		Example: `  berth orgs set vision --name "Vision group" --billing-email bills@example.org
  berth orgs set vision --slug seeing`,
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if change == (wire.OrgChange{}) {
				return cli.UsageErrorf("give --name, --slug or --billing-email")
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			o, err := c.ChangeOrg(cmd.Context(), args[0], change)
			if err != nil {
				return orgError(err, args[0])
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), o)
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "berth: the organization %s is named %q\n", o.Slug, o.Name)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&change.Name, "name", "", "new `name`")
	flags.StringVar(&change.Slug, "slug", "", "new `slug`; the old one is free from then on")
	flags.StringVar(&change.BillingEmail, "billing-email", "", "new billing `address`")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newOrgDelete returns the command berth orgs delete.
func newOrgDelete(conn *cli.Connection) *cobra.Command {
	var confirmed bool
	cmd := &cobra.Command{
		Use: "delete SLUG --yes", Short: "Delete an organization with its members, keys and secrets",
		Long: `Delete ends an organization that has no live executions: its members, keys, invites,
variables and secrets are gone, and its credits are lost. Its ledger stays on record.`,
		Example: `  berth orgs delete vision --yes`,
		Args:    cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !confirmed {
				return cli.UsageErrorf("this cannot be undone: repeat it with --yes")
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			if err := c.DeleteOrg(cmd.Context(), args[0]); err != nil {
				return orgError(err, args[0])
			}
			cli.Report(cmd, cli.Done{Name: args[0], Done: "deleted"}, "the organization %s is deleted", args[0])
			return nil
		},
	}
	cmd.Flags().BoolVar(&confirmed, "yes", false, "delete it for good")
	return cli.Reporting(cmd)
}

// newOrgDefault returns the command berth orgs default.
func newOrgDefault(conn *cli.Connection) *cobra.Command {
	return cli.Reporting(&cobra.Command{
		Use: "default SLUG", Short: "Act in an organization wherever none is chosen",
		Example: `  berth orgs default vision`, Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			o, err := c.SetDefaultOrg(cmd.Context(), args[0])
			if err == nil {
				cli.Report(cmd, cli.Done{Name: o.Slug, Done: "default"}, "%s is your default organization", o.Slug)
			}
			return orgError(err, args[0])
		},
	})
}
