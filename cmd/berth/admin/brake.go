package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
)

// newBrake returns the command berth admin brake.
func newBrake(conn *cli.Connection) *cobra.Command {
	cmd := cli.Parent("brake", "Control the circuit breaker for rescheduling",
		newBrakeShow(conn), newBrakeSet(conn), newBrakeRelease(conn))
	cmd.Long = `When more than a third of the nodes, and at least two, are lost within 30 s, the
network is more likely at fault than the nodes. The brake then holds: no attempt is
given up or restarted elsewhere. It ends when the nodes are heard again or drained.
If they are really gone, end it with

  berth admin brake release`
	return cmd
}

// newBrakeShow returns the command berth admin brake show.
func newBrakeShow(conn *cli.Connection) *cobra.Command {
	return brakeCommand(conn, "show", "Show whether the brake holds, since when, and for which nodes",
		func(cmd *cobra.Command, c *client.Client) (wire.Brake, error) { return c.Brake(cmd.Context()) })
}

// newBrakeSet returns the command berth admin brake set.
func newBrakeSet(conn *cli.Connection) *cobra.Command {
	var share int
	cmd := brakeCommand(conn, "set", "Say how many nodes that vanish at once are too many to be given up",
		func(cmd *cobra.Command, c *client.Client) (wire.Brake, error) {
			if share < 0 || share > 100 {
				return wire.Brake{}, cli.UsageErrorf("--share: must be 0 to 100")
			}
			return c.SetBrakeShare(cmd.Context(), share)
		})
	cmd.Flags().IntVar(&share, "share", 0,
		"`percent` of the nodes above which the brake holds; 0 for a third, 100 for never")
	return cli.NeedFlags(cmd, "share")
}

// newBrakeRelease returns the command berth admin brake release.
func newBrakeRelease(conn *cli.Connection) *cobra.Command {
	cmd := brakeCommand(conn, "release", "Give up the nodes that have vanished so far",
		func(cmd *cobra.Command, c *client.Client) (wire.Brake, error) {
			return c.ReleaseBrake(cmd.Context())
		})
	cmd.Long = `Release confirms that the nodes that have vanished so far are gone. Their executions are
given up as soon as they have ended there for certain. Those with retries left restart on
other nodes. The others end as a system failure, which is not billed. Nodes that vanish
later are held again.`
	return cmd
}

// brakeCommand returns a command that prints the answer of ask.
func brakeCommand(conn *cli.Connection, use, short string, ask func(*cobra.Command, *client.Client) (wire.Brake, error),
) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			b, err := ask(cmd, c)
			if err != nil {
				return err
			}
			return printBrake(cmd, b, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printBrake writes the state of the brake, and a row for each node that holds
// it.
func printBrake(cmd *cobra.Command, b wire.Brake, asJSON bool) error {
	if asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), b)
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "Too many nodes vanish at once when they are %s.\n", describeShare(b.Share))
	if b.ReleasedAt != nil {
		fmt.Fprintf(w, "Those that had vanished by %s were said to be gone.\n", b.ReleasedAt)
	}
	if !b.Holds {
		_, err := fmt.Fprintln(w, "The brake does not hold: what is lost is given up.")
		return err
	}
	fmt.Fprintf(w, "The brake holds since %s: no attempt is given up until these are heard or drained, "+
		"or it is released.\n", b.Since)
	t := cli.NewTable("name", "down since", "live attempts", "id")
	for _, n := range b.Vanished {
		t.AppendRow(cli.Row(n.Name, n.DownAt, n.LiveWork, n.ID))
	}
	return cli.PrintTable(w, t)
}

// describeShare describes the share of nodes that is too many.
func describeShare(percent int) string {
	switch percent {
	case 0:
		return "at least 2 and more than a third of them"
	case 100:
		return "more than all: never"
	}
	return fmt.Sprintf("at least 2 and more than %d %% of them", percent)
}
