package account

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// NewInvite returns the command berth invite.
func NewInvite() *cobra.Command {
	conn := &cli.Connection{}
	cmd := cli.Parent("invite", "Invite people to your organization, and answer invites",
		newInviteCreate(conn), newInviteList(conn), newInviteRevoke(conn), newInviteMine(conn),
		newInviteAnswer(conn, "accept", "Join the organization of an invite"),
		newInviteAnswer(conn, "decline", "Decline an invite"))
	cmd.Long = `Owners and admins invite a person by e-mail address. Berth sends no mail: it prints a
token for the person, which is good for a week and only with an account of that address.
A person without an account makes one with berth login --create where the operator allows
that, or gets one from an operator: berth admin user create.`
	conn.Register(cmd)
	return cmd
}

// withOrg calls what with a client and the slug of the organization it acts in.
func withOrg(cmd *cobra.Command, conn *cli.Connection, what func(c *client.Client, slug string) error) error {
	c, err := conn.Client(cmd)
	if err != nil {
		return err
	}
	slug, err := slugOf(cmd, c)
	if err != nil {
		return err
	}
	return what(c, slug)
}

// newInviteCreate returns the command berth invite create.
func newInviteCreate(conn *cli.Connection) *cobra.Command {
	var roleName string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "create EMAIL", Short: "Invite a person; prints the token for the person",
		Example: `  berth invite create bea@example.org
  berth invite create bea@example.org --role admin`,
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var role compute.OrgRole
			if err := role.UnmarshalText([]byte(roleName)); err != nil {
				return cli.UsageErrorf("--role: must be owner, admin or member")
			}
			return withOrg(cmd, conn, func(c *client.Client, slug string) error {
				made, err := c.Invite(cmd.Context(), slug, args[0], role)
				if err != nil {
					return err
				}
				if asJSON {
					return cli.PrintJSON(cmd.OutOrStdout(), made)
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "berth: %s is invited to %s as %s until %s; send this to the person:\n",
					made.Email, slug, cli.A(made.Role.String()), day(&made.ExpiresAt))
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "berth invite accept "+made.Token)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&roleName, "role", "member", "owner, admin or member")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(
		[]string{"owner", "admin", "member"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// newInviteList returns the command berth invite ls.
func newInviteList(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List the invites of the organization", Example: `  berth invite ls`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withOrg(cmd, conn, func(c *client.Client, slug string) error {
				list, err := c.Invites(cmd.Context(), slug)
				if err != nil {
					return err
				}
				return printInvites(cmd, list, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newInviteMine returns the command berth invite mine.
func newInviteMine(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "mine", Short: "List the invites to you that you can answer", Example: `  berth invite mine`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			list, err := c.MyInvites(cmd.Context())
			if err != nil {
				return err
			}
			return printInvites(cmd, list, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printInvites prints invites as a table, or as JSON.
func printInvites(cmd *cobra.Command, list []wire.Invite, asJSON bool) error {
	if asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), append([]wire.Invite{}, list...))
	}
	t := cli.NewTable("id", "organization", "email", "role", "status", "by", "expires")
	for _, i := range list {
		t.AppendRow(cli.Row(i.ID, i.OrgSlug, i.Email, i.Role, i.Status, cli.OrNone(i.InvitedBy), day(&i.ExpiresAt)))
	}
	return cli.PrintTable(cmd.OutOrStdout(), t)
}

// newInviteRevoke returns the command berth invite rm.
func newInviteRevoke(conn *cli.Connection) *cobra.Command {
	return cli.Reporting(&cobra.Command{
		Use: "rm EMAIL|ID...", Short: "Revoke invites", Example: `  berth invite rm bea@example.org`,
		Args: cli.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withOrg(cmd, conn, func(c *client.Client, slug string) error {
				list, err := c.Invites(cmd.Context(), slug)
				if err != nil {
					return err
				}
				return cli.Each(cmd, args, func(arg string) error {
					for _, i := range list {
						if i.ID.String() == arg || strings.EqualFold(i.Email, arg) && i.Status == "pending" {
							err := c.RevokeInvite(cmd.Context(), slug, i.ID)
							if err == nil {
								cli.Report(cmd, cli.Done{Name: arg, Done: "revoked"}, "the invite of %s is revoked", i.Email)
							}
							return err
						}
					}
					return fmt.Errorf("%s is not invited to %s: see berth invite ls", arg, slug)
				})
			})
		},
	})
}

// newInviteAnswer returns the command berth invite accept or decline.
func newInviteAnswer(conn *cli.Connection, name, short string) *cobra.Command {
	return cli.Reporting(&cobra.Command{
		Use: name + " TOKEN", Short: short, Example: "  berth invite " + name + " inv_...",
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			i, err := c.AnswerInvite(cmd.Context(), args[0], name == "accept")
			if err != nil {
				return err
			}
			if name == "accept" {
				cli.Report(cmd, cli.Done{Name: i.OrgSlug, Done: "joined"}, "you are %s of %s; berth orgs use %s acts there",
					cli.A(i.Role.String()), i.OrgSlug, i.OrgSlug)
				return nil
			}
			cli.Report(cmd, cli.Done{Name: i.OrgSlug, Done: "declined"}, "the invite to %s is declined", i.OrgSlug)
			return nil
		},
	})
}
