package admin

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"berth/api/wire"
	"berth/cmd/berth/cli"
)

// newUserCreate returns the command berth admin user create.
func newUserCreate(conn *cli.Connection) *cobra.Command {
	var user wire.NewUser
	var passwordFile string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a user with an organization",
		Long: `Create makes a user who owns a new organization. It reads the password from a
file, or asks for it on a terminal.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			if user.Password, err = readPassword(cmd, passwordFile); err != nil {
				return err
			}
			made, err := c.CreateUser(cmd.Context(), user)
			if err != nil {
				return err
			}
			return cli.PrintJSON(cmd.OutOrStdout(), made)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&user.Email, "email", "", "the user's `address`, to sign in with")
	flags.StringVar(&user.OrgSlug, "org", "", "`slug` of the new organization")
	flags.StringVar(&user.OrgName, "org-name", "", "its name (default: the slug)")
	flags.StringVar(&user.FullName, "name", "", "the user's name")
	flags.BoolVar(&user.Operator, "operator", false, "the user may use berth admin")
	flags.StringVar(&passwordFile, "password-file", "", "`file` with the password; - for standard input")
	return cli.NeedFlags(cmd, "email", "org")
}

// readPassword returns the password from the file, or from the terminal.
func readPassword(cmd *cobra.Command, file string) (string, error) {
	const limit = 4096
	switch {
	case file == "-":
		text, err := cli.ReadLimited(cmd.InOrStdin(), "standard input", limit)
		return strings.TrimRight(text, "\r\n"), err
	case file != "":
		text, err := cli.ReadFile(file, limit)
		return strings.TrimRight(text, "\r\n"), err
	case !term.IsTerminal(int(os.Stdin.Fd())):
		return "", cli.UsageErrorf("no terminal to ask for the password on: use --password-file")
	}
	var typed [2][]byte
	for i, prompt := range []string{"Password: ", "Again: "} {
		fmt.Fprint(cmd.ErrOrStderr(), prompt)
		var err error
		typed[i], err = term.ReadPassword(int(os.Stdin.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
		if err != nil {
			return "", fmt.Errorf("read password: %w", err)
		}
	}
	if !bytes.Equal(typed[0], typed[1]) {
		return "", cli.UsageErrorf("the two passwords differ")
	}
	return string(typed[0]), nil
}
