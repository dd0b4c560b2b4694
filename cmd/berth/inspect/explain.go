package inspect

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// NewExplain returns the command berth explain.
func NewExplain() *cobra.Command {
	conn := &cli.Connection{}
	var asJSON, defrag bool
	cmd := &cobra.Command{
		Use:   "explain ID",
		Short: "Explain why an execution waits, when it may start, or why it was placed where it is",
		Args:  cli.Arguments(cobra.ExactArgs(1)), ValidArgsFunction: CompleteExecutions(conn, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := clientAndExecution(cmd, conn, args[0])
			if err != nil {
				return err
			}
			known, err := c.Explain(cmd.Context(), id, defrag)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), known)
			}
			return printExplanation(cmd.OutOrStdout(), known, defrag)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&defrag, "defrag", false, "also search for the cheapest moves that would let it start now")
	conn.Register(cmd)
	return cmd
}

// printExplanation writes the explanation as two columns.
func printExplanation(w io.Writer, x wire.Explanation, defrag bool) error {
	t := cli.NewTable()
	t.AppendRow(cli.Row("execution", x.ExecutionID))
	if x.Name != nil {
		t.AppendRow(cli.Row("name", *x.Name))
	}
	t.AppendRow(cli.Row("status", x.Status))
	if x.Reason != nil {
		reason := *x.Reason
		if text := reasonText(reason); text != "" {
			reason += ": " + text
		}
		t.AppendRow(cli.Row("reason", reason))
	}
	if x.Detail != nil {
		t.AppendRow(cli.Row("detail", *x.Detail))
	}
	if x.MaxRetries > 0 {
		t.AppendRow(cli.Row("retries", fmt.Sprintf("%d of %d", x.Retries, x.MaxRetries)))
	}
	if b := x.Brake; b != nil {
		t.AppendRow(cli.Row("brake", brakeOf(b)))
	}
	if x.Position != nil {
		t.AppendRow(cli.Row("position", fmt.Sprintf("%d of %d", *x.Position, x.Queued)))
		t.AppendRow(cli.Row("ahead", fmt.Sprintf("%d executions with %g GPUs, %d of them yours with %g",
			x.Ahead.Executions, x.Ahead.GPUs, x.Ahead.OwnExecutions, x.Ahead.OwnGPUs)))
		t.AppendRow(cli.Row("nodes", nodesOf(x)))
		if x.Concurrency != nil {
			t.AppendRow(cli.Row("running", fmt.Sprintf("%d of at most %d", x.Concurrency.Used, x.Concurrency.Limit)))
		}
		t.AppendRow(cli.Row("start", startOf(x.Estimate)))
	}
	for i := range x.Replicas {
		t.AppendRow(cli.Row("replica", ReplicaState(&x.Replicas[i])))
	}
	for _, line := range x.EngineOutput {
		t.AppendRow(cli.Row("engine", line))
	}
	if p := x.Placement; p != nil {
		next := "no other node fitted"
		if p.RunnerUp != nil {
			next = fmt.Sprintf("next was %s with %d", *p.RunnerUp, *p.RunnerUpScore)
		}
		t.AppendRow(cli.Row("placed", fmt.Sprintf("on %s by entry %d, score %d; %s", p.Node, p.Index, p.Score, next)))
	}
	if defrag && x.Position != nil {
		t.AppendRow(cli.Row("moves", movesOf(x.Defragmentation)))
	}
	return cli.PrintTable(w, t)
}

// brakeOf describes why an attempt is not given up although its node is down,
// and the operator's options.
func brakeOf(b *wire.BrakeHold) string {
	return fmt.Sprintf("%s is down since %s, and %d nodes vanished at once (%d are heard): nothing is given up until "+
		"they are heard; if they are gone, an operator says so (berth admin brake release)",
		b.Node, b.DownAt, b.Vanished, b.Up)
}

// nodesOf describes how many nodes fit an execution, and why the others do not.
func nodesOf(x wire.Explanation) string {
	parts := []string{fmt.Sprintf("%d known, %d with free capacity", x.Nodes, x.NodesFit)}
	for _, reason := range slices.Sorted(maps.Keys(x.Refused)) {
		parts = append(parts, fmt.Sprintf("%d %s", x.Refused[reason], reason))
	}
	return strings.Join(parts, ", ")
}

// startOf describes when an execution may start.
func startOf(e *wire.Estimate) string {
	if e == nil {
		return "cannot be estimated"
	}
	text := fmt.Sprintf("in %s (p50), %s (p90)", inSeconds(e.P50Seconds), inSeconds(e.P90Seconds))
	if e.Samples == 0 {
		text += "; nothing like it has ended yet, so only time limits are known"
	}
	if e.Calibrated.P90 != nil {
		text += fmt.Sprintf("; of %d earlier estimates the p90 held for %.0f %%",
			e.Calibrated.Estimates, 100**e.Calibrated.P90)
	}
	return text
}

// inSeconds returns a readable duration, rounded to seconds.
func inSeconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

// movesOf describes which executions could be moved.
func movesOf(q *wire.Quote) string {
	if q == nil {
		return "none would help"
	}
	moves := make([]string, len(q.Moves))
	for i, m := range q.Moves {
		who := "another organization's execution"
		if m.ExecutionID != nil {
			who = m.ExecutionID.String()
		}
		moves[i] = fmt.Sprintf("%s from %s to %s (loses %s, %s credits)",
			who, m.From, m.To, inSeconds(m.LostSeconds), m.Price)
	}
	return fmt.Sprintf("%s credits would let it start on %s: %s", q.Price, q.Node, strings.Join(moves, "; "))
}

// ReplicaState returns the state of a replica, for people.
func ReplicaState(row *wire.ServiceReplica) string {
	switch {
	case row.Ready:
		return fmt.Sprintf("replica %d is ready on %s", row.Number, cli.OrNone(row.Node))
	case row.NextStart != nil:
		return fmt.Sprintf("replica %d ended as %s (%s) and starts again at %s", row.Number, row.Status,
			cli.OrNone(row.StatusDetails), row.NextStart.Time().Local().Format(time.TimeOnly))
	case row.StatusDetails != nil && *row.StatusDetails != compute.ReasonScheduling.String():
		return fmt.Sprintf("replica %d is %s: %s", row.Number, row.Status, *row.StatusDetails)
	case row.Status == compute.StatusRunning:
		return fmt.Sprintf("replica %d runs and is not ready yet", row.Number)
	}
	return fmt.Sprintf("replica %d is %s", row.Number, row.Status)
}
