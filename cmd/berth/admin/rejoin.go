//go:build !client

package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
	"berth/node/repair"
)

// newRaftRejoin returns the command berth admin raft rejoin.
func newRaftRejoin() *cobra.Command {
	var dir string
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "rejoin",
		Short: "Make a stopped server rejoin empty at its next start",
		Long: `Rejoin makes the stopped server in --data-dir give up its replica at its next
start. The other servers take its vote, the replica is set aside, and the server
receives the state from them, as after disk damage. It also readmits a server whose
state was wrong twice within a day; test that machine's memory first. Without --yes
it changes nothing.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cli.KeepPrivate()
			r, err := repair.Rejoin(dir, yes)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), r)
			}
			word := "Nothing is changed yet. With --yes server"
			if r.Done {
				word = "Done: server"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s comes in empty at its next start.\n", word, r.Node)
			return err
		},
	}
	offline(cmd, &dir, &yes, &asJSON)
	return cli.NeedFlags(cmd, "data-dir")
}
