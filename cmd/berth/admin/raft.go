package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// newRaft returns the command berth admin raft.
func newRaft(conn *cli.Connection) *cobra.Command {
	return cli.Parent("raft", "Manage the servers that hold the state",
		append([]*cobra.Command{newRaftPeers(conn), newRaftTransfer(conn)}, repairs()...)...)
}

// newRaftPeers returns the command berth admin raft peers.
func newRaftPeers(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "List the servers, the voters and the leader",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			peers, err := c.Peers(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), peers)
			}
			nodes, err := c.Nodes(cmd.Context())
			if err != nil {
				return err
			}
			return printPeers(cmd, peers, nodes)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printPeers writes a row for each peer, with the name of its node. A removed
// peer that still votes has no name.
func printPeers(cmd *cobra.Command, peers []wire.Peer, nodes []wire.Node) error {
	t := cli.NewTable("name", "part", "state", "address", "id")
	for _, p := range peers {
		name, state := "-", "removed"
		for _, n := range nodes {
			if n.ID == p.ID {
				name, state = n.Name, n.State.String()+clockOf(n)
			}
		}
		if p.Diverged != nil && *p.Diverged {
			state += ", diverged"
		}
		t.AppendRow(cli.Row(name, partOf(wire.Node{ID: p.ID}, peers), state, p.Address, p.ID))
	}
	return cli.PrintTable(cmd.OutOrStdout(), t)
}

// newRaftTransfer returns the command berth admin raft transfer.
func newRaftTransfer(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "transfer [NODE]",
		Short: "Transfer leadership to another server",
		Long: `Transfer makes the leader hand leadership to another voter: the one named, or the
one that is most up to date. Requests wait for it, usually less than a second. A
node that stops does this by itself.

A process hands leadership over once in its life. After that, or after a failed
transfer, restart the leader to make another server lead.`,
		Args: cli.Arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			var to compute.NodeID
			if len(args) > 0 {
				n, err := findNode(cmd.Context(), c, args[0])
				if err != nil {
					return err
				}
				to = n.ID
			}
			done, err := c.TransferLeadership(cmd.Context(), to)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), done)
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "berth: %s leads\n", done.Name)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
