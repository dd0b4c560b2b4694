package admin

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
)

// newSecrets returns the command berth admin secrets.
func newSecrets(conn *cli.Connection) *cobra.Command {
	return cli.Parent("secrets", "Rotate the keys that seal secrets", newSecretsRotate(conn))
}

// newSecretsRotate returns the command berth admin secrets rotate.
func newSecretsRotate(conn *cli.Connection) *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "rotate [ORG...]",
		Short: "Give organizations new data keys",
		Long: `Rotate gives each organization a new data key, seals its secrets with it and drops the
keys before. Nothing stops meanwhile. Keys that only live executions still need stay:
rotate again once those have ended.`,
		Example: `  berth admin secrets rotate lab
  berth admin secrets rotate --all`,
		Args: cli.Arguments(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return cli.UsageErrorf("name organizations, or give --all")
			}
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			if all {
				orgs, err := c.AllOrgs(cmd.Context())
				if err != nil {
					return err
				}
				for _, o := range orgs {
					args = append(args, o.Slug)
				}
			}
			return rotateSecrets(cmd, c, args, asJSON)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "rotate those of all organizations")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// rotateSecrets gives organizations new data keys. Those that can have one get it, whatever
// becomes of the others.
func rotateSecrets(cmd *cobra.Command, c *client.Client, slugs []string, asJSON bool) error {
	done, faults := []wire.RotatedSecrets{}, []error(nil)
	for _, slug := range slugs {
		rotated, err := c.RotateSecrets(cmd.Context(), slug)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", slug, err))
			continue
		}
		done = append(done, rotated)
	}
	if asJSON {
		faults = append(faults, cli.PrintJSON(cmd.OutOrStdout(), done))
		return errors.Join(faults...)
	}
	t := cli.NewTable("organization", "key", "sealed again", "left")
	for i := range done {
		t.AppendRow(cli.Row(done[i].Org, done[i].Key, done[i].Resealed, done[i].Left))
	}
	return errors.Join(append(faults, cli.PrintTable(cmd.OutOrStdout(), t))...)
}
