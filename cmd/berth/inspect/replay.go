package inspect

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/api/wire"
	"berth/cmd/berth/cli"
)

// NewReplay returns the command berth replay.
func NewReplay() *cobra.Command {
	conn := &cli.Connection{Operator: true}
	var index uint64
	var top int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Recompute a scheduling decision and explain it",
		Long: `Replay recomputes the plan in one entry of the Raft log, from the snapshot and the log
of the node that answers, and compares it byte for byte with the original decision.
berth explain prints the entry that placed an execution.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := conn.Client(cmd)
			if err != nil {
				return err
			}
			again, err := c.Replay(cmd.Context(), index, top)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), again)
			}
			return printReplay(cmd.OutOrStdout(), again)
		},
	}
	conn.Register(cmd)
	cmd.Flags().Uint64Var(&index, "index", 0, "Raft `index` of the entry")
	cmd.Flags().IntVar(&top, "top", 3, "how many of the best nodes to show for each execution")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cli.NeedFlags(cmd, "index")
}

// printReplay writes a table for each plan.
func printReplay(w io.Writer, again wire.Replay) error {
	for _, plan := range again.Plans {
		same := "the same, byte for byte"
		if !plan.Same {
			same = fmt.Sprintf("NOT the same: %v instead of %v", plan.Computed, plan.Recorded)
		}
		_, err := fmt.Fprintf(w, "Entry %d of term %d, decided on the state at %d; computed again it is %s.\n",
			again.Index, plan.Term, plan.ViewIndex, same)
		if err != nil {
			return err
		}
		t := cli.NewTable("execution", "node", "score", "runner-up", "best", "refused", "applied")
		for _, d := range plan.Decisions {
			t.AppendRow(cli.Row(d.ExecutionID, orReason(d), cli.OrNone(d.Score), runnerUpOf(d),
				bestOf(d.Best), countsOf(d.Refused), appliedOf(d)))
		}
		if err := cli.PrintTable(w, t); err != nil {
			return err
		}
	}
	return nil
}

// orReason returns the node, or the reason why there is none.
func orReason(d wire.Decision) string {
	if d.Node != nil {
		return *d.Node
	}
	return "(" + cli.OrNone(d.Reason) + ")"
}

func runnerUpOf(d wire.Decision) string {
	if d.RunnerUp == nil {
		return "-"
	}
	return fmt.Sprintf("%s %d", *d.RunnerUp, *d.RunnerUpScore)
}

func bestOf(best []wire.NodeScore) string {
	parts := make([]string, len(best))
	for i, n := range best {
		parts[i] = fmt.Sprintf("%s %d", n.Node, n.Score)
	}
	return strings.Join(parts, ", ")
}

// countsOf returns numbers by name, "-" for none.
func countsOf(counts wire.Counts) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[name], name))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

func appliedOf(d wire.Decision) string {
	switch {
	case d.Node == nil:
		return "-"
	case d.Applied:
		return "yes"
	}
	return "no: " + cli.OrNone(d.Skipped)
}
