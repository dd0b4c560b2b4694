package benchcmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"berth/bench/state"
	"berth/cmd/berth/cli"
)

// stateFlags are the flags of berth bench state.
type stateFlags struct {
	config     state.Config
	node       bool
	jsonOutput bool
}

// newState returns the command berth bench state.
func newState() *cobra.Command {
	f := &stateFlags{}
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Measure memory, snapshots and restarts with many finished executions",
		Long: `State fills a state machine with finished executions through real commands: each is
submitted with an API key, a tag, an op id and a bundle of 400 bytes, placed, started
and finished. Then it measures the live heap per execution, the latency of entries that
come every 2 ms (alone, and while a snapshot is written), and the time to restore a
snapshot and to read a backup with all checks.

With --node it also starts a real node and measures it idle, restoring the backup,
restarting, and answering requests that come every 2 ms before, while and after it
writes a snapshot. The node writes one after 2 to 4 minutes. After an error the
report has the completed steps.`,
		Args: cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.config.Executions, "executions", state.DefaultExecutions, "finished `executions`")
	flags.Uint64Var(&f.config.Seed, "seed", 42, "`seed` of the executions")
	flags.StringVar(&f.config.Dir, "dir", "", "empty `directory` for the snapshot (default: a temporary one)")
	flags.BoolVar(&f.node, "node", false, "also measure a real node, which takes some minutes")
	flags.BoolVar(&f.jsonOutput, "json", false, "print JSON")
	return cmd
}

func (f *stateFlags) run(cmd *cobra.Command) error {
	if err := f.config.Validate(); err != nil {
		return &cli.ExitError{Code: cli.ExitUsage, Err: err}
	}
	f.config.Progress = progressTo(cmd.ErrOrStderr())
	if f.node {
		var err error
		if f.config.Program, err = os.Executable(); err != nil {
			return err
		}
	}
	report, err := state.Run(cmd.Context(), f.config)
	if len(report.Steps) == 0 {
		return err
	}
	if f.jsonOutput {
		return errors.Join(err, cli.PrintJSON(cmd.OutOrStdout(), report))
	}
	return errors.Join(err, printState(cmd.OutOrStdout(), &report))
}

// stateTable is the report as a table, with rows for the completed steps.
type stateTable struct {
	table.Writer

	report *state.Report
}

func (t stateTable) line(step, name, limit, format string, args ...any) {
	if slices.Contains(t.report.Steps, step) {
		t.AppendRow(cli.Row(name, fmt.Sprintf(format, args...), limit))
	}
}

func (t stateTable) pace(step, what string, p *state.FixedRate) {
	for _, s := range []struct {
		name   string
		spread *state.Spread
	}{{"applied", &p.Apply}, {"from due to applied", &p.Late}} {
		t.line(step, "entries "+what+", "+s.name, "", "p50 %.2f, p99 %.2f, p99.9 %.2f, max %.2f ms of %d",
			s.spread.P50MS, s.spread.P99MS, s.spread.P999MS, s.spread.MaxMS, p.Entries)
	}
}

// node adds the rows of a real node.
func (t stateTable) node(n *state.NodeReport) {
	t.line(state.StepRestart, "restart of a node, from exec to ready", "10 s at 1000000",
		"%.2f s, right after the restore %.2f s", n.RestartS, n.FirstS)
	t.line(state.StepReplay, "the same, with entries behind the snapshot", "",
		"%.2f s, %d entries", n.ReplayS, n.Writes.Behind)
	t.writes(&n.Writes)
	t.line(state.StepRestart, "restore of a backup by its command", "60 s at 1000000", "%.2f s", n.RestoreS)
	t.line(state.StepNode, "resident memory of an idle node", "60 MiB",
		"%.1f MiB, %.1f MiB its own", n.IdleMiB, n.IdleOwnMiB)
	t.line(state.StepRestart, "resident memory of the restarted node", "",
		"%.0f MiB, at most %.0f MiB", n.RestartedMiB, n.RestartedPeak)
}

// writes adds the rows of the requests, including those before a failed one.
func (t stateTable) writes(w *state.Writes) {
	spread := func(a *state.Asked) string {
		return fmt.Sprintf("p50 %.1f, p99 %.1f, max %.0f ms of %d", a.Late.P50MS, a.Late.P99MS, a.Late.MaxMS, a.Requests)
	}
	if w.InSnapshot.Requests > 0 {
		t.AppendRow(cli.Row("requests, due while it wrote a snapshot",
			fmt.Sprintf("%s; %d in %.2f s", spread(&w.InSnapshot), w.Snapshots, w.SnapshotS), ""))
	}
	if w.Otherwise.Requests > 0 {
		t.AppendRow(cli.Row("requests, due before and after",
			fmt.Sprintf("%s; in %.0f s", spread(&w.Otherwise), w.LastedS-w.SnapshotS), ""))
	}
}

// printState writes the report as a table.
func printState(w io.Writer, r *state.Report) error {
	t := stateTable{cli.NewTable("figure", "value", "at most"), r}
	t.line(state.StepHistory, "memory of a finished execution", "1024 B", "%.0f B", r.PerExecution)
	t.line(state.StepRestore, "the same, restored", "1024 B", "%.0f B", r.RestoredHeap)
	t.pace(state.StepEntries, "alone", &r.Quiet)
	t.pace(state.StepEntries, "beside other work", &r.Beside)
	t.pace(state.StepSnapshot, "while a snapshot is written", &r.InSnapshot)
	t.line(state.StepRestore, "restore of the snapshot", "10 s at 1000000",
		"%.2f s, %.2f s of processors", r.RestoreS, r.RestoreCPUS)
	if r.Node != nil {
		t.node(r.Node)
	}
	t.line(state.StepBackup, "restore of a backup", "60 s at 1000000", "%.2f s", r.BackupReadS)
	t.line(state.StepSnapshot, "snapshot written", "", "%.2f s, %d MB", r.SnapshotS, r.SnapshotBytes/1_000_000)
	t.line(state.StepSnapshot, "snapshot taken", "", "%.1f us", r.PublishUS)
	t.line(state.StepBackup, "backup written", "", "%.2f s", r.BackupS)
	t.line(state.StepSnapshot, "hash of the state", "", "%.0f us", r.HashUS)
	t.line(state.StepHistory, "executions applied", "", "%.0f/s", r.AppliedPS)
	t.line(state.StepReads, "an execution read", "", "%.0f us", r.OneUS)
	t.line(state.StepReads, "newest 1000 of a history", "", "%.1f ms", r.PageUS/1000)
	t.line(state.StepReads, "oldest 1000 of a history, by offset", "", "%.1f ms", r.OffsetUS/1000)
	t.line(state.StepReads, "oldest of a history", "", "%.0f ms", r.DeepMS)
	t.line(state.StepReads, "history filtered by status", "", "%.0f ms", r.FilterMS)
	t.line(state.StepReads, "ledger verified", "", "%.0f ms", r.LedgerMS)
	t.line(state.StepHistory, "garbage collection", "", "%.0f ms", r.GCMS)
	if err := cli.PrintTable(w, t.Writer); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d finished executions, %d cores.\n", r.Executions, r.Cores)
	return err
}
