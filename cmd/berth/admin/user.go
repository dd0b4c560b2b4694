package admin

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// newUser returns the command berth admin user.
func newUser(conn *cli.Connection) *cobra.Command {
	cmd := cli.Parent("user", "Manage users",
		newUserList(conn), newUserCreate(conn), newUserAdd(conn),
		newUserDisable(conn, "disable", "Disable users, which ends their sessions", true),
		newUserDisable(conn, "enable", "Enable disabled users", false),
		newUserReset(conn))
	cmd.Long = `A user is named by the email address or the identifier. To give a colleague access:

  berth admin user create --email bea@example.org --org lab

and send what it prints to the colleague.`
	return cmd
}

// newUserList returns the command berth admin user list.
func newUserList(conn *cli.Connection) *cobra.Command {
	var org string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List users",
		Example: `  berth admin user list
  berth admin user list --org lab --json`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			users, err := c.Users(cmd.Context(), org, "")
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), orEmpty(users))
			}
			t := cli.NewTable("email", "organizations", "state", "name", "since")
			for _, u := range users {
				t.AppendRow(cli.Row(u.Email, describeOrgs(u), describeState(u), cli.OrNone(u.FullName),
					u.CreatedAt.Time().Format("2006-01-02")))
			}
			return cli.PrintTable(cmd.OutOrStdout(), t)
		},
	}
	cmd.Flags().StringVar(&org, "org", "", "list only members of the organization with this `slug`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// orEmpty returns the list, which is empty in JSON and never null.
func orEmpty[T any](list []T) []T { return append([]T{}, list...) }

// describeOrgs returns the organizations of a user with the roles.
func describeOrgs(u wire.User) string {
	var texts []string
	for _, o := range u.Orgs {
		texts = append(texts, fmt.Sprintf("%s (%s)", o.OrgSlug, o.Role))
	}
	if len(texts) == 0 {
		return "-"
	}
	return strings.Join(texts, ", ")
}

// describeState returns whether a user can sign in, and what is special.
func describeState(u wire.User) string {
	text := "active"
	switch {
	case !u.IsActive:
		text = "disabled"
	case u.Temporary:
		text = "first password"
	}
	if u.Operator {
		text += ", operator"
	}
	return text
}

// newUserCreate returns the command berth admin user create.
func newUserCreate(conn *cli.Connection) *cobra.Command {
	var user wire.NewUser
	var passwordFile string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a user in an organization",
		Long: `Create makes a user who becomes a member of an organization. An organization that
does not exist is created, and the user owns it.

It prints what to send to the person: the address, a first password, and the command
with which to sign in. berth login asks for a new password then. With --password-file
the password is yours to choose and to hand over.`,
		Example: `  berth admin user create --email ada@example.org --org lab
  berth admin user create --email bea@example.org --org lab --role admin --name Bea`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			if passwordFile != "" {
				secret := cli.Secret{Prompt: "Password", File: passwordFile, Flag: "password-file"}
				if user.Password, err = secret.Read(cmd); err != nil {
					return err
				}
				if user.Password == "" {
					return cli.UsageErrorf("--password-file: the password is empty")
				}
			}
			made, err := c.CreateUser(cmd.Context(), user)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), made)
			}
			return printInvitation(cmd.OutOrStdout(), c.Addrs(), made)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&user.Email, "email", "", "the user's `address`, to sign in with")
	flags.StringVar(&user.OrgSlug, "org", "", "`slug` of the organization, created when it does not exist")
	flags.StringVar(&user.OrgName, "org-name", "", "`name` of a new organization (default: the slug)")
	flags.StringVar(&user.Role, "role", "",
		"`role` in it: owner, admin or member (default: owner of a new one, else member)")
	flags.StringVar(&user.FullName, "name", "", "the user's `name`")
	flags.BoolVar(&user.Operator, "operator", false, "let the user use berth admin")
	flags.StringVar(&passwordFile, "password-file", "",
		"`file` with the password; - for standard input (default: make one)")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cli.NeedFlags(cmd, "email", "org")
}

// printInvitation writes what to send to a new user.
func printInvitation(w io.Writer, addrs []string, u wire.User) error {
	org, role := "-", compute.OrgMember
	for _, o := range u.Orgs {
		org, role = o.OrgSlug, o.Role
	}
	_, err := fmt.Fprintf(w, "%s is %s of %s.", u.Email, cli.A(role.String()), org)
	if err != nil || u.Password == "" {
		fmt.Fprintln(w)
		return err
	}
	return printFirstPassword(w, " Send this to the person:\n", addrs, u)
}

// printFirstPassword writes a password that was made, and how to sign in with it.
func printFirstPassword(w io.Writer, before string, addrs []string, u wire.User) error {
	_, err := fmt.Fprintf(w, `%s
  address         %s
  email           %s
  first password  %s

  berth login --addr %s --email %s

The password is shown this once; berth login asks for a new one.
`, before, strings.Join(addrs, ","), u.Email, u.Password, strings.Join(addrs, ","), u.Email)
	return err
}

// newUserAdd returns the command berth admin user add.
func newUserAdd(conn *cli.Connection) *cobra.Command {
	var org string
	role := compute.OrgMember.String()
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "add USER",
		Short:   "Make a user a member of another organization",
		Long:    `Add makes an existing user a member of an organization, or changes the role there.`,
		Example: `  berth admin user add bea@example.org --org vision --role admin`,
		Args:    cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var as compute.OrgRole
			if err := as.UnmarshalText([]byte(role)); err != nil {
				return cli.UsageErrorf("--role: must be owner, admin or member")
			}
			c, u, err := clientAndUser(cmd, conn, args[0])
			if err != nil {
				return err
			}
			if u, err = c.AddMember(cmd.Context(), u.UserID, org, as); err != nil {
				return err
			}
			return printUser(cmd, u, asJSON, fmt.Sprintf("%s is %s of %s", u.Email, cli.A(as.String()), org))
		},
	}
	cmd.Flags().StringVar(&org, "org", "", "`slug` of the organization")
	cmd.Flags().StringVar(&role, "role", role, "`role` in it: owner, admin or member")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cli.NeedFlags(cmd, "org")
}

// newUserDisable returns the command berth admin user disable or enable.
func newUserDisable(conn *cli.Connection, verb, short string, disable bool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: verb + " USER...", Short: short,
		Example: "  berth admin user " + verb + " bea@example.org",
		Args:    cli.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Each(cmd, args, func(arg string) error {
				c, u, err := clientAndUser(cmd, conn, arg)
				if err != nil {
					return err
				}
				if u, err = c.DisableUser(cmd.Context(), u.UserID, disable); err != nil {
					return err
				}
				return printUser(cmd, u, asJSON, u.Email+" is "+verb+"d")
			})
		},
	}
	if disable {
		cmd.Long = `Disable ends the sessions of users and refuses their API keys from the next request on,
on every node. Their executions continue. Enable lets them sign in again, and
their API keys are good again; berth keys revoke deletes a key for good.`
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newUserReset returns the command berth admin user reset.
func newUserReset(conn *cli.Connection) *cobra.Command {
	var passwordFile string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reset USER",
		Short: "Give a user a new password",
		Long: `Reset makes a new password for a user, prints it, and ends the user's sessions. API
keys stay good.`,
		Example: `  berth admin user reset bea@example.org`,
		Args:    cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			password := ""
			if passwordFile != "" {
				secret := cli.Secret{Prompt: "Password", File: passwordFile, Flag: "password-file"}
				var err error
				if password, err = secret.Read(cmd); err != nil {
					return err
				}
			}
			c, u, err := clientAndUser(cmd, conn, args[0])
			if err != nil {
				return err
			}
			if u, err = c.ResetPassword(cmd.Context(), u.UserID, password); err != nil {
				return err
			}
			if asJSON || u.Password == "" {
				return printUser(cmd, u, asJSON, u.Email+" has a new password")
			}
			return printFirstPassword(cmd.OutOrStdout(), "Send this to the person:\n", c.Addrs(), u)
		},
	}
	cmd.Flags().StringVar(&passwordFile, "password-file", "",
		"`file` with the password; - for standard input (default: make one)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printUser prints a user after a change: JSON, or that it is done.
func printUser(cmd *cobra.Command, u wire.User, asJSON bool, done string) error {
	if asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), u)
	}
	_, err := fmt.Fprintln(cmd.ErrOrStderr(), "berth:", done)
	return err
}

// clientAndUser returns a client and the user with an address or an identifier.
func clientAndUser(cmd *cobra.Command, conn *cli.Connection, arg string) (*client.Client, wire.User, error) {
	c, err := conn.Client(cmd)
	if err != nil {
		return nil, wire.User{}, err
	}
	u, err := findUser(cmd.Context(), c, arg)
	return c, u, err
}

// findUser returns the user with an address or an identifier.
func findUser(ctx context.Context, c *client.Client, arg string) (wire.User, error) {
	email := ""
	if strings.Contains(arg, "@") {
		email = arg
	}
	users, err := c.Users(ctx, "", email)
	if err != nil {
		return wire.User{}, err
	}
	for _, u := range users {
		if strings.EqualFold(u.Email, arg) || u.UserID.String() == arg {
			return u, nil
		}
	}
	return wire.User{}, fmt.Errorf("no user %q: see berth admin user list", arg)
}
