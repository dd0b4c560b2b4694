package admin

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/loop"
)

// newStorage returns the command berth admin storage.
func newStorage(conn *cli.Connection) *cobra.Command {
	return cli.Parent("storage", "Manage where stored files are kept", newMigrate(conn))
}

// askEvery is how often a migration is asked how far it is.
const askEvery = time.Second

// newMigrate returns the command berth admin storage migrate.
func newMigrate(conn *cli.Connection) *cobra.Command {
	var jsonOutput bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Move all stored files to where new ones go",
		Long: `Migrate copies what all stored files consist of to where the server that it asks keeps new
ones: the object store of storage.objects, or the disks of the servers. Files are read
and stored meanwhile. It can be repeated; what is there already is not copied again.

To an object store: set storage.objects on all servers, restart them, and migrate. The
disks let go of what the store has within an hour.
Back to disks, or to another store: set storage.objects_from to the URL of the old store,
and storage.objects to that of the new one, or to nothing; restart the servers, migrate,
and take storage.objects_from away again.`,
		Example: "  berth admin storage migrate",
		Args:    cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			state, err := c.Migrate(cmd.Context(), true)
			for err == nil && state.Status == "running" && loop.Sleep(cmd.Context(), askEvery) {
				if state, err = c.Migrate(cmd.Context(), false); err == nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d chunks, %d MiB copied\n", state.Done, state.Blobs, state.Bytes>>20)
				}
			}
			if err == nil {
				err = cmd.Context().Err()
			}
			if err != nil {
				return err
			}
			return printMigration(cmd, state, jsonOutput)
		},
	}
	cmd.Flags().BoolVar(&jsonOutput, "json", false, "print the migration as JSON")
	return cmd
}

// printMigration prints the result of a migration.
func printMigration(cmd *cobra.Command, m wire.StorageMigration, jsonOutput bool) error {
	if m.Status != "done" {
		why := "the node was restarted: repeat the command"
		if m.Error != nil {
			why = *m.Error
		}
		return fmt.Errorf("not all files were moved (%d of %d chunks failed): %s", m.Failed, m.Blobs, why)
	}
	if jsonOutput {
		return cli.PrintJSON(cmd.OutOrStdout(), m)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "All %d chunks of stored files are where new ones go.\n", m.Blobs)
	return nil
}
