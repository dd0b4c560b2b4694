package admin

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// newTokenCreate returns the command berth admin token create.
func newTokenCreate(conn *cli.Connection) *cobra.Command {
	var token wire.NewJoinToken
	var ttl time.Duration
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a join token",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			keep, err := cli.OpenSecret(cmd, "token", out)
			if err != nil {
				return err
			}
			token.TTL = int(ttl.Seconds())
			made, err := c.CreateJoinToken(cmd.Context(), token)
			if err != nil {
				return errors.Join(err, keep.Drop())
			}
			return saveToken(cmd, keep, out, made, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&token.Role, "role", compute.RoleServer.String(),
		"what the machine may be: server, which holds the state, or worker, which executes only")
	flags.DurationVar(&ttl, "ttl", time.Hour, "lifetime of the token, at most 1h")
	flags.IntVar(&token.Uses, "uses", 1, "how many machines may join with it")
	flags.StringVar(&out, "out", "", "`file` to write the token to, readable only by you; - for standard output")
	flags.BoolVar(&asJSON, "json", false, "print JSON: the token too, with --out -")
	return cli.NeedFlags(cmd, "out")
}

// saveToken puts the token's text where it goes. JSON has it only if no file has it.
func saveToken(cmd *cobra.Command, keep *cli.SecretOutput, out string, made wire.JoinToken, asJSON bool) error {
	if asJSON && out == "-" {
		return keep.Show(made.Token, cli.PrintJSON(cmd.OutOrStdout(), made))
	}
	if err := keep.Keep(made.Token); err != nil || out == "-" {
		return err
	}
	if asJSON {
		made.Token = ""
		return cli.PrintJSON(cmd.OutOrStdout(), made)
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "berth: token for %d %s in %s, good until %s\n",
		made.Uses, made.Role, out, made.ExpiresAt)
	return err
}
