package admin

import (
	"errors"
	"fmt"
	"io"
	"os"
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
			token.TTL = int(ttl.Seconds())
			made, err := c.CreateJoinToken(cmd.Context(), token)
			if err != nil {
				return err
			}
			if asJSON {
				return printToken(cmd, out, made)
			}
			return saveToken(cmd, out, made)
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

// printToken prints a token as JSON. Its text is in it only if it is in no file.
func printToken(cmd *cobra.Command, out string, made wire.JoinToken) error {
	if out != "-" {
		cmd.SetErr(io.Discard)
		if err := saveToken(cmd, out, made); err != nil {
			return err
		}
		made.Token = ""
	}
	return cli.PrintJSON(cmd.OutOrStdout(), made)
}

// saveToken writes the token's text to a new file that only its owner can read.
func saveToken(cmd *cobra.Command, out string, made wire.JoinToken) error {
	if out == "-" {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), made.Token)
		return err
	}
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	_, err = fmt.Fprintln(f, made.Token)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "berth: token for %d %s in %s, good until %s\n",
		made.Uses, made.Role, out, made.ExpiresAt)
	return err
}
