package admin

import (
	"errors"
	"fmt"
	"io"
	"os"

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

If the answer is lost, nobody has the new token: a user who is an operator can
rotate it again, so make one before (berth admin user create --operator).`,
		Example: `  berth admin root-token rotate --out new_root_token`,
		Args:    cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			keep, undo, err := openSecret(cmd, out) // Before the old token ends.
			if err != nil {
				return err
			}
			made, err := c.RotateRootToken(cmd.Context())
			if err != nil {
				return errors.Join(err, undo())
			}
			if asJSON && out == "-" {
				return cli.PrintJSON(cmd.OutOrStdout(), made)
			}
			if _, err := fmt.Fprintln(keep, made.RootToken); err != nil {
				return fmt.Errorf("--out: %w", err)
			}
			if err := keep.Close(); err != nil {
				return fmt.Errorf("--out: %w", err)
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

// openSecret opens what a secret is written to: a new file that only its owner can read, or
// standard output. Undo removes the file.
func openSecret(cmd *cobra.Command, out string) (w io.WriteCloser, undo func() error, err error) {
	if out == "-" {
		return struct {
			io.Writer
			io.Closer
		}{cmd.OutOrStdout(), io.NopCloser(nil)}, func() error { return nil }, nil
	}
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("--out: %w", err)
	}
	return f, func() error { return errors.Join(f.Close(), os.Remove(out)) }, nil
}
