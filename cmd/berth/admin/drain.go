package admin

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
)

// drainPoll is the poll interval of berth admin node drain --wait.
const drainPoll = time.Second

// newNodeDrain returns the command berth admin node drain.
func newNodeDrain(conn *cli.Connection) *cobra.Command {
	var asJSON, wait bool
	var deadline time.Duration
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Stop placing work on a node, and optionally empty it by a deadline",
		Long: `Drain stops placing work on a node. Running executions finish.

With a deadline, executions that are preemptible or have retries left are moved to
other nodes at once. Executions that have not started by the deadline are queued
again. Those that still run then are ended as a system failure and not billed. The
cluster keeps the deadline, also when the leader changes. berth admin node undrain,
or another drain, cancels it; executions that were asked to leave still do.`,
		Args: cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("deadline") && deadline < time.Second {
				return cli.UsageErrorf("--deadline: must be at least 1s")
			}
			c, n, err := clientAndNode(cmd, conn, args[0])
			if err != nil {
				return err
			}
			if n, err = c.DrainNodeWithin(cmd.Context(), n.ID, deadline); err != nil {
				return err
			}
			if wait {
				if n, err = waitDrained(cmd, c, n); err != nil {
					return err
				}
			}
			return printNode(cmd, n, asJSON)
		},
	}
	cmd.Flags().DurationVar(&deadline, "deadline", 0, "`time` after which running executions are ended (default: never)")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the node is idle, and show the remaining executions")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// newNodeUndrain returns the command berth admin node undrain.
func newNodeUndrain(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "undrain NODE",
		Short: "Resume placing work on a node",
		Args:  cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, n, err := clientAndNode(cmd, conn, args[0])
			if err != nil {
				return err
			}
			if n, err = c.DrainNode(cmd.Context(), n.ID, false); err != nil {
				return err
			}
			return printNode(cmd, n, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printNode prints the state of a node after a drain or an undrain.
func printNode(cmd *cobra.Command, n wire.Node, asJSON bool) error {
	if asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), n)
	}
	_, err := fmt.Fprintln(cmd.ErrOrStderr(), "berth:", describeDrain(n))
	return err
}

// describeDrain describes the state of a node.
func describeDrain(n wire.Node) string {
	switch {
	case !n.Drained:
		return n.Name + " gets new work again"
	case n.LiveWork == 0:
		return n.Name + " is drained and executes nothing: it can be removed"
	}
	text := fmt.Sprintf("%s gets no new work and still executes %d", n.Name, n.LiveWork)
	if n.Leaving > 0 {
		text += fmt.Sprintf(", of which %d leave", n.Leaving)
	}
	if n.DrainBy != nil && n.Leaving < n.LiveWork {
		text += fmt.Sprintf("; what is left ends at %s", n.DrainBy)
	}
	return text
}

// waitDrained prints the number of executions that the node still runs, each
// time that it changes, until it is 0.
func waitDrained(cmd *cobra.Command, c *client.Client, n wire.Node) (wire.Node, error) {
	ticker := time.NewTicker(drainPoll)
	defer ticker.Stop()
	shown := ""
	for n.LiveWork > 0 {
		if words := describeDrain(n); words != shown {
			fmt.Fprintln(cmd.ErrOrStderr(), "berth:", words)
			shown = words
		}
		select {
		case <-ticker.C:
		case <-cmd.Context().Done():
			return n, cmd.Context().Err()
		}
		nodes, err := c.Nodes(cmd.Context())
		if err != nil {
			return n, err
		}
		at := slices.IndexFunc(nodes, func(other wire.Node) bool { return other.ID == n.ID })
		if at < 0 {
			return n, errors.New(n.Name + " was removed meanwhile")
		}
		if n = nodes[at]; !n.Drained {
			return n, errors.New("somebody has undrained " + n.Name + " meanwhile")
		}
	}
	return n, nil
}
