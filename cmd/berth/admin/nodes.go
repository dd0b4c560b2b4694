package admin

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// newNodes returns the command berth admin nodes.
func newNodes(conn *cli.Connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes and their GPUs",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			return printNodes(cmd, c, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printNodes(cmd *cobra.Command, c *client.Client, asJSON bool) error {
	nodes, err := c.Nodes(cmd.Context())
	if err != nil {
		return err
	}
	slices.SortFunc(nodes, func(a, b wire.Node) int { return strings.Compare(a.Name, b.Name) })
	if asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), nodes)
	}
	peers, err := c.Peers(cmd.Context())
	if err != nil {
		return err
	}
	t := cli.NewTable("name", "state", "part", "gpus", "engines", "api", "version", "gaps", "id")
	for _, n := range nodes {
		state := n.State.String()
		if n.Drained {
			state += ", drained"
		}
		state += clockOf(n)
		t.AppendRow(cli.Row(
			n.Name, state, partOf(n, peers), gpusOf(n), enginesOf(n), n.API, n.Version, gapsText(n.Gaps), n.ID))
	}
	return cli.PrintTable(cmd.OutOrStdout(), t)
}

// clockOf describes by how much the node's clock differs, "" for a negligible
// difference.
func clockOf(n wire.Node) string {
	if n.ClockAhead == nil {
		return ""
	}
	ahead := time.Duration(*n.ClockAhead) * time.Millisecond
	if ahead.Abs() <= compute.ClockDrift {
		return ""
	}
	return ", clock " + compute.AheadText(ahead)
}

// partOf returns the node's role in the replication of the state.
func partOf(n wire.Node, peers []wire.Peer) string {
	for _, p := range peers {
		switch {
		case p.ID != n.ID:
		case p.Leader:
			return "leader"
		case p.Voter:
			return "voter"
		default:
			return "replica"
		}
	}
	return n.Role.String()
}

// gpusOf returns the node's GPUs by type. A star marks simulated ones.
func gpusOf(n wire.Node) string {
	types := make([]string, len(n.GPUs))
	for i, g := range n.GPUs {
		types[i] = g.Type
		if g.Simulated {
			types[i] += "*"
		}
	}
	return cli.CountTypes(types)
}

// enginesOf names the engines of a node for containers and models, "-" for none, and says why no
// containers start there.
func enginesOf(n wire.Node) string {
	trustedOnly := map[string]bool{} // By the name of the engine.
	for _, o := range n.Offers {
		if name, trusted := o.Engine(); name != "" {
			only, known := trustedOnly[name]
			trustedOnly[name] = trusted && (only || !known)
		}
	}
	if len(trustedOnly) == 0 {
		return "-"
	}
	names := slices.Sorted(maps.Keys(trustedOnly))
	for i, name := range names {
		if trustedOnly[name] {
			names[i] += " (trusted only)"
		}
	}
	text := strings.Join(names, ", ")
	if n.EngineFault != "" {
		text += " (" + n.EngineFault + ")"
	}
	return text
}

// gapsText names what a node's kernel does not enforce of the sandbox, "-" for nothing.
func gapsText(gaps []compute.Gap) string {
	if len(gaps) == 0 {
		return "-"
	}
	texts := make([]string, len(gaps))
	for i, g := range gaps {
		texts[i] = g.String()
	}
	return strings.Join(texts, ", ")
}
