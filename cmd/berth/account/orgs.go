package account

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/contexts"
	"berth/compute"
)

// NewOrgs returns the command berth orgs.
func NewOrgs() *cobra.Command {
	conn := &cli.Connection{}
	list := newOrgList(conn)
	cmd := cli.Parent("orgs", "List organizations and manage their members",
		list, newOrgMembers(conn), newOrgUse(conn), newOrgDefault(conn), newOrgCreate(conn), newOrgSet(conn),
		newOrgRole(conn), newOrgRemove(conn), newOrgDelete(conn),
		newOrgCallbackSecret(conn))
	cmd.Long = `Without a further command, berth orgs lists your organizations. Members of the role
member use an organization, admins also manage its keys, invite people (berth invite)
and remove members, and owners also change roles and the slug, and delete it.`
	cmd.Example = `  berth orgs
  berth orgs members
  berth orgs role bea@example.org admin`
	cmd.RunE = list.RunE
	conn.Register(cmd)
	return cmd
}

// newOrgList returns the command berth orgs list.
func newOrgList(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List your organizations", Example: `  berth orgs list --json`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			orgs, err := c.Orgs(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), append([]wire.Org{}, orgs...))
			}
			current, err := slugOf(cmd, c)
			if err != nil {
				return err
			}
			t := cli.NewTable("", "slug", "name", "role")
			for _, o := range orgs {
				mark := " "
				if o.Slug == current {
					mark = "*"
				}
				t.AppendRow(cli.Row(mark, o.Slug, o.Name, o.Role))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newOrgMembers returns the command berth orgs members.
func newOrgMembers(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "members", Short: "List the members of the organization", Example: `  berth orgs members --org lab`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, _, members, err := membersOf(cmd, conn)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), append([]wire.Member{}, members...))
			}
			t := cli.NewTable("email", "role", "name", "joined")
			for _, m := range members {
				t.AppendRow(cli.Row(m.Email, m.Role, cli.OrNone(m.FullName), day(&m.JoinedAt)))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// membersOf returns the members of the organization that the caller acts in.
func membersOf(cmd *cobra.Command, conn *cli.Connection) (*client.Client, string, []wire.Member, error) {
	c, err := conn.Client(cmd)
	if err != nil {
		return nil, "", nil, err
	}
	slug, err := slugOf(cmd, c)
	if err != nil {
		return nil, "", nil, err
	}
	members, err := c.Members(cmd.Context(), slug)
	return c, slug, members, err
}

// memberIn returns the member with an address or an identifier.
func memberIn(members []wire.Member, arg, slug string) (wire.Member, error) {
	at := slices.IndexFunc(members, func(m wire.Member) bool {
		return strings.EqualFold(m.Email, arg) || m.UserID.String() == arg
	})
	if at < 0 {
		return wire.Member{}, fmt.Errorf("%s is not a member of %s: see berth orgs members", arg, slug)
	}
	return members[at], nil
}

// completeMember completes the address of a member, and then a role.
func completeMember(conn *cli.Connection, roles bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if roles && len(args) > 0 {
			return []string{"owner", "admin", "member"}, cobra.ShellCompDirectiveNoFileComp
		}
		_, _, members, err := membersOf(cmd, conn)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var emails []string
		for _, m := range members {
			emails = append(emails, m.Email)
		}
		return emails, cobra.ShellCompDirectiveNoFileComp
	}
}

// newOrgUse returns the command berth orgs use.
func newOrgUse(conn *cli.Connection) *cobra.Command {
	return cli.Reporting(&cobra.Command{
		Use: "use SLUG", Short: "Act in another of your organizations from now on",
		Long:    `Use keeps the organization in the context. --org and BERTH_ORG choose one for a command.`,
		Example: `  berth orgs use vision`, Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := conn.Target(cmd)
			if err != nil {
				return err
			}
			switch {
			case t.Name == "":
				return cli.UsageErrorf("no context is in use: sign in with berth login, or set BERTH_ORG=%s", args[0])
			case t.Saved.Key != "":
				return cli.UsageErrorf("the context %s has an API key, which is for one organization: "+
					"sign in with berth login", t.Name)
			}
			c, err := t.Client(cmd.Context())
			if err != nil {
				return err
			}
			orgs, err := c.Orgs(cmd.Context())
			if err != nil {
				return err
			}
			if !hasOrg(orgs, args[0]) {
				return fmt.Errorf("you are not a member of %q: see berth orgs", args[0])
			}
			err = contexts.Update(func(f *contexts.File) error {
				saved := f.Contexts[t.Name]
				saved.Org = args[0]
				f.Contexts[t.Name] = saved
				return nil
			})
			if err != nil {
				return err
			}
			cli.Report(cmd, cli.Done{Name: args[0], Done: "used"}, "the context %s acts in %s", t.Name, args[0])
			return nil
		},
	})
}

// newOrgRole returns the command berth orgs role.
func newOrgRole(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "role MEMBER ROLE", Short: "Change the role of a member: owner, admin or member",
		Example: `  berth orgs role bea@example.org admin`, Args: cli.Arguments(cobra.ExactArgs(2)),
		ValidArgsFunction: completeMember(conn, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			var role compute.OrgRole
			if err := role.UnmarshalText([]byte(args[1])); err != nil {
				return cli.UsageErrorf("the role must be owner, admin or member")
			}
			c, slug, members, err := membersOf(cmd, conn)
			if err != nil {
				return err
			}
			m, err := memberIn(members, args[0], slug)
			if err != nil {
				return err
			}
			if m, err = c.SetRole(cmd.Context(), slug, m.UserID, role); err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), m)
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "berth: %s is %s of %s\n", m.Email, cli.A(m.Role.String()), slug)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newOrgRemove returns the command berth orgs remove.
func newOrgRemove(conn *cli.Connection) *cobra.Command {
	return cli.Reporting(&cobra.Command{
		Use: "remove MEMBER...", Short: "Remove members, or leave, and delete their API keys here",
		Example: `  berth orgs remove bea@example.org`, Args: cli.Arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeMember(conn, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, slug, members, err := membersOf(cmd, conn)
			if err != nil {
				return err
			}
			return cli.Each(cmd, args, func(arg string) error {
				m, err := memberIn(members, arg, slug)
				if err != nil {
					return err
				}
				if err := c.RemoveMember(cmd.Context(), slug, m.UserID); err != nil {
					return err
				}
				cli.Report(cmd, cli.Done{Name: m.Email, Done: "removed"}, "%s has left %s", m.Email, slug)
				return nil
			})
		},
	})
}
