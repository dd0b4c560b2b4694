package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
)

// newAdminNode returns the command berth admin node.
func newAdminNode(conn *connection) *cobra.Command {
	list := newNodes(conn)
	list.Use = "list"
	cmd := parent("node", "The nodes of the cluster: drain and remove them",
		list, newNodeDrain(conn, true), newNodeDrain(conn, false), newNodeRemove(conn))
	cmd.Long = `A node is named by its name or its identifier, as berth admin node list shows
them. To take a machine out of the cluster, drain it, wait until it executes
nothing, and remove it:

  berth admin node drain gpu-3
  berth admin node list
  berth admin node remove gpu-3`
	return cmd
}

// newNodeDrain returns the command berth admin node drain, or undrain.
func newNodeDrain(conn *connection, drained bool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Place no new work on a node; what it executes goes on",
		Args:  arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, n, err := conn.node(cmd, args[0])
			if err != nil {
				return err
			}
			if n, err = c.DrainNode(cmd.Context(), n.ID, drained); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), n)
			}
			_, err = fmt.Fprintln(cmd.ErrOrStderr(), "berth:", drainWords(n))
			return err
		},
	}
	if !drained {
		cmd.Use, cmd.Short = "undrain NODE", "Place new work on a node again"
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// drainWords says what a node does after it was drained or undrained.
func drainWords(n wire.Node) string {
	switch {
	case !n.Drained:
		return n.Name + " gets new work again"
	case n.LiveWork == 0:
		return n.Name + " is drained and executes nothing: it can be removed"
	}
	return fmt.Sprintf("%s gets no new work and still executes %d", n.Name, n.LiveWork)
}

// newNodeRemove returns the command berth admin node remove.
func newNodeRemove(conn *connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "remove NODE",
		Short: "Remove a node that executes nothing, for good",
		Long: `Remove takes a node out of the cluster. It is refused while the node executes
something, while too few of the servers that vote would answer without it, and for
the last server. The node ends with exit code 3. To have its machine join again,
move its data directory away and start it with a new join token.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, n, err := conn.node(cmd, args[0])
			if err != nil {
				return err
			}
			if err := c.RemoveNode(cmd.Context(), n.ID); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"removed": n.ID, "name": n.Name})
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "berth: %s is removed\n", n.Name)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// node returns a client and the node that an argument names.
func (c *connection) node(cmd *cobra.Command, name string) (*client.Client, wire.Node, error) {
	api, err := c.client(cmd)
	if err != nil {
		return nil, wire.Node{}, err
	}
	n, err := findNode(cmd.Context(), api, name)
	return api, n, err
}

// findNode returns the node with a name or an identifier. A name that two
// nodes have names neither.
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

// newRaft returns the command berth admin raft.
func newRaft(conn *connection) *cobra.Command {
	return parent("raft", "The servers that hold the state", newRaftPeers(conn))
}

// newRaftPeers returns the command berth admin raft peers.
func newRaftPeers(conn *connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "Show which servers hold the state, which vote on it and which one leads",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.client(cmd)
			if err != nil {
				return err
			}
			peers, err := c.Peers(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), peers)
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

// printPeers writes a row for each peer, with the name of its node; one that
// was removed and still votes has none.
func printPeers(cmd *cobra.Command, peers []wire.Peer, nodes []wire.Node) error {
	t := newTable("name", "part", "state", "address", "id")
	for _, p := range peers {
		name, state := "-", "removed"
		for _, n := range nodes {
			if n.ID == p.ID {
				name, state = n.Name, n.State.String()
			}
		}
		t.AppendRow(row(name, partOf(wire.Node{ID: p.ID}, peers), state, p.Address, p.ID))
	}
	return printTable(cmd.OutOrStdout(), t)
}
