package admin

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// newAdminNode returns the command berth admin node.
func newAdminNode(conn *cli.Connection) *cobra.Command {
	list := newNodes(conn)
	list.Use = "list"
	cmd := cli.Parent("node", "Manage the nodes of the cluster",
		list, newNodeDrain(conn), newNodeUndrain(conn), newNodeRemove(conn))
	cmd.Long = `A node is named by its name or its identifier, as berth admin node list shows
them. To take a machine out of the cluster, drain it, wait until it executes
nothing, and remove it:

  berth admin node drain gpu-3 --deadline 10m --wait
  berth admin node remove gpu-3`
	return cmd
}

// newNodeRemove returns the command berth admin node remove.
func newNodeRemove(conn *cli.Connection) *cobra.Command {
	var asJSON, force bool
	cmd := &cobra.Command{
		Use:   "remove NODE",
		Short: "Remove an idle node permanently",
		Long: `Remove takes an idle node out of the cluster. It is refused while the node runs
something, while too few voters would answer without it, while other servers still
copy data that only the node may have (archives of old executions, and code), and
for the last server. The removed node ends with exit code 3. To let its machine join
again, move its data directory away and start it with a new join token.`,
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, n, err := clientAndNode(cmd, conn, args[0])
			if err != nil {
				return err
			}
			remove := c.RemoveNode
			if force {
				remove = c.ForceRemoveNode
			}
			if err := remove(cmd.Context(), n.ID); err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"removed": n.ID, "name": n.Name})
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "berth: %s is removed\n", n.Name)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&force, "force", false, "remove the node even if it may hold the only copy of some data")
	return cmd
}

// clientAndNode returns a client and the node that an argument names.
func clientAndNode(cmd *cobra.Command, conn *cli.Connection, name string) (*client.Client, wire.Node, error) {
	api, err := conn.Client(cmd)
	if err != nil {
		return nil, wire.Node{}, err
	}
	n, err := findNode(cmd.Context(), api, name)
	return api, n, err
}

// findNode returns the node with a name or an identifier. A name that two nodes
// share is an error.
func findNode(ctx context.Context, api *client.Client, name string) (wire.Node, error) {
	nodes, err := api.Nodes(ctx)
	if err != nil {
		return wire.Node{}, err
	}
	id, err := compute.ParseNodeID(name)
	byID := err == nil
	var found []wire.Node
	var names []string
	for _, n := range nodes {
		if byID && n.ID == id || n.Name == name {
			found = append(found, n)
		}
		names = append(names, n.Name)
	}
	switch len(found) {
	case 0:
		return wire.Node{}, fmt.Errorf("there is no node %s, only %s", name, strings.Join(names, ", "))
	case 1:
		return found[0], nil
	}
	return wire.Node{}, fmt.Errorf("%d nodes have the name %s: use the identifier that berth admin node list shows",
		len(found), name)
}
