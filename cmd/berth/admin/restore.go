//go:build !client

package admin

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
	"berth/compute"
	"berth/node/repair"
)

// newSnapshotRestore returns the command berth admin snapshot restore.
func newSnapshotRestore() *cobra.Command {
	var dir string
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a backup to a stopped server",
		Long: `Restore makes the server in --data-dir the only voter of its cluster, with the
state in FILE. Stop all servers first. It verifies the backup and prints what it
would do; with --yes it does so, checking only checksums, record formats and ledger
chains. The keys in the directory stay and must belong to the same cluster. The
server's previous state is set aside.

Then start this server, and the others after it: each sets its own replica aside and
rejoins empty. Earlier join tokens, logins and attempts become void.`,
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cli.KeepPrivate()
			r, err := repair.RestoreBackup(args[0], dir, yes, time.Now()) //nolint:forbidigo // The operator's now.
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), r)
			}
			return printRestore(cmd.OutOrStdout(), r, dir)
		},
	}
	offline(cmd, &dir, &yes, &asJSON)
	return cli.NeedFlags(cmd, "data-dir")
}

// offline adds the flags of a command on a stopped server.
func offline(cmd *cobra.Command, dir *string, yes, asJSON *bool) {
	cmd.Flags().StringVar(dir, "data-dir", "", "`directory` of the stopped server (data_dir of its configuration)")
	cmd.Flags().BoolVar(yes, "yes", false, "confirm: make the change")
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
}

func printRestore(w io.Writer, r repair.Restore, dir string) error {
	if err := printBackup(w, r.Backup); err != nil {
		return err
	}
	if r.MissingArchives > 0 {
		_, err := fmt.Fprintf(w, `
The blobs of %d of the state's %d archives are not in %s. Unless another server brings them,
executions in them cannot be read: copy the directory blobs of any server that has them into it.
`, r.MissingArchives, r.State.Archives, dir)
		if err != nil {
			return err
		}
	}
	if r.Done {
		earlier := ""
		if r.SetAside != "" { // A replaced machine has none.
			earlier = "Its earlier data is in " + r.SetAside + "\n"
		}
		_, err := fmt.Fprintf(w, `
Restored: server %s holds it alone, in epoch %d of the cluster.
%d attempts ended unbilled, %d executions wait and will be executed, %d join tokens are void.
%sStart this server, and once it answers the others.
`, r.Node, r.Epoch, r.Ended, r.Queued, r.Tokens, earlier)
		return err
	}
	_, err := fmt.Fprintf(w, `
Nothing is changed yet. With --yes server %s in %s would
  hold this state alone, in epoch %d of the cluster, and forget what came after it
  end %d attempts, unbilled, and execute the %d executions that wait, some perhaps for the second time
  make %d join tokens and all logins void; API keys and passwords stay those of the backup
Stop all servers of the cluster before.
`, r.Node, dir, r.Epoch, r.Ended, r.Queued, r.Tokens)
	return err
}

// newRaftRecover returns the command berth admin raft recover.
func newRaftRecover() *cobra.Command {
	var dir string
	var names []string
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Recover when most voters are lost permanently",
		Long: `Recover makes the stopped server in --data-dir, alone or with one more survivor, the
only voter of the cluster. The lost servers must never return with their data. Stop
all survivors. Run recover on the one, or the two, with the newest entries, with the
same --voters on both: two survivors that each recovered alone would be two clusters.
Other survivors rejoin empty when they start, and vote again.

Without --voters it prints the known servers; without --yes it prints what it would
do. Everything acknowledged that reached those voters is kept, and anything that only
the lost servers had is gone. Earlier join tokens, logins and attempts become void.

  berth admin raft recover --data-dir /var/lib/berth
  berth admin raft recover --data-dir /var/lib/berth --voters ID,ID --yes`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if yes && len(names) == 0 {
				return cli.UsageErrorf("--voters: name the one or two servers to go on with, this one among them and " +
					"the same on each; without --yes this command shows which there were")
			}
			voters := make([]compute.NodeID, len(names))
			for i, name := range names {
				var err error
				if voters[i], err = compute.ParseNodeID(name); err != nil {
					return cli.UsageErrorf("--voters: %w", err)
				}
			}
			cli.KeepPrivate()
			r, err := repair.Recover(dir, voters, yes)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), r)
			}
			return printRecovery(cmd.OutOrStdout(), r)
		},
	}
	cmd.Flags().StringSliceVar(&names, "voters", nil,
		"`identifiers` of the one or two survivors to go on with, this server among them")
	offline(cmd, &dir, &yes, &asJSON)
	return cli.NeedFlags(cmd, "data-dir")
}

func printRecovery(w io.Writer, r repair.Recovery) error {
	t := cli.NewTable("server", "votes", "address")
	for _, s := range r.Servers {
		t.AppendRow(cli.Row(s.ID, s.Voter, s.Address))
	}
	if err := cli.PrintTable(w, t); err != nil {
		return err
	}
	voters := make([]string, len(r.Voters))
	for i, v := range r.Voters {
		voters[i] = v.String()
	}
	if r.Done {
		_, err := fmt.Fprintf(w, `
Recovered: server %s has everything up to entry %d and goes on in epoch %d of the cluster.
Run the same on the other voters, if there are any, and start them.
`, r.Node, r.Last, r.Epoch)
		return err
	}
	_, err := fmt.Fprintf(w, `
Nothing is changed yet. This is server %s; its newest entry is %d of a replica in term %d.
`, r.Node, r.Last, r.Term)
	if err != nil {
		return err
	}
	if len(voters) == 0 {
		_, err = fmt.Fprintf(w, `Name the servers that are left with --voters, the same on each of them. For this one alone:
  --voters %s
`, r.Node)
		return err
	}
	_, err = fmt.Fprintf(w, `With --yes the cluster goes on in epoch %d with --voters %s
Servers that are not among them lose what only they have, and come in empty when they start again.
`, r.Epoch, strings.Join(voters, ","))
	return err
}
