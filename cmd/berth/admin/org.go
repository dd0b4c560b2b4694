package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
)

// newOrg returns the command berth admin org.
func newOrg(conn *cli.Connection) *cobra.Command {
	return cli.Parent("org", "List organizations and say which are trusted", newOrgList(conn), newOrgTrust(conn))
}

// newOrgList returns the command berth admin org list.
func newOrgList(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all organizations of the cluster",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			orgs, err := c.AllOrgs(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), orgs)
			}
			t := cli.NewTable("slug", "name", "members", "trusted", "created")
			for _, o := range orgs {
				trusted := ""
				if o.Trusted {
					trusted = "yes"
				}
				t.AppendRow(cli.Row(o.Slug, o.Name, o.Members, trusted, o.CreatedAt))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newOrgTrust returns the command berth admin org trust.
func newOrgTrust(conn *cli.Connection) *cobra.Command {
	var revoke, asJSON bool
	cmd := &cobra.Command{
		Use:   "trust SLUG",
		Short: "Let an organization use nodes with weak isolation of containers",
		Long: `Trust lets containers of an organization be placed on nodes whose Docker engine is
older than the fixes of known escapes. berth admin nodes shows which those are.
Containers of other organizations are never placed there.

  berth admin org trust lab
  berth admin org trust lab --revoke`,
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			org, err := c.TrustOrg(cmd.Context(), args[0], !revoke)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), org)
			}
			how := "trusted"
			if !org.Trusted {
				how = "not trusted"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is %s\n", org.Slug, how)
			return err
		},
	}
	cmd.Flags().BoolVar(&revoke, "revoke", false, "trust it no longer; what runs goes on")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
