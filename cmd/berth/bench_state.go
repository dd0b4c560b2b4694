package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"berth/bench/state"
)

// stateFlags are the flags of berth bench state.
type stateFlags struct {
	config     state.Config
	node       bool
	jsonOutput bool
}

// newBenchState returns the command berth bench state.
func newBenchState() *cobra.Command {
	f := &stateFlags{}
	cmd := &cobra.Command{
		Use:   "state",
		Short: "What finished executions cost a replica: memory, snapshots, restarts",
		Long: `State fills a state machine with finished executions by real commands: each is
submitted with an API key, a tag, an op and a bundle of 400 bytes, placed, started
and finished. Then it measures the live heap for each execution, with all that
belongs to it, how long entries take that come every 2 ms, alone and while a snapshot
is written, and how long a restore and the reading of a backup take, with their checks.
With --node it also starts a real node, measures it idle, restores the backup to it as
an operator would, and measures how long its restart takes from exec to ready, how
long requests take that come every 2 ms until the node has written a snapshot, and
a restart with all that they left in its log.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.config.Executions, "executions", state.DefaultExecutions, "finished `executions`")
	flags.Uint64Var(&f.config.Seed, "seed", 42, "`seed` of what is executed")
	flags.StringVar(&f.config.Dir, "dir", "", "empty `directory` for the snapshot (default: a temporary one)")
	flags.BoolVar(&f.node, "node", false, "measure a real node too, for some minutes more")
	flags.BoolVar(&f.jsonOutput, "json", false, "print JSON")
	return cmd
}

func (f *stateFlags) run(cmd *cobra.Command) error {
	if err := f.config.Validate(); err != nil {
		return &exit{code: exitUsage, err: err}
	}
	f.config.Progress = benchProgress(cmd.ErrOrStderr())
	if f.node {
		var err error
		if f.config.Program, err = os.Executable(); err != nil {
			return err
		}
	}
	report, err := state.Run(cmd.Context(), f.config)
	if err != nil {
		return err
	}
	if f.jsonOutput {
		return printJSON(cmd.OutOrStdout(), report)
	}
	return printState(cmd.OutOrStdout(), &report)
}

// printState writes the report as a table.
func printState(w io.Writer, r *state.Report) error {
	t := newTable("figure", "value", "at most")
	line := func(name, limit, format string, args ...any) {
		t.AppendRow(row(name, fmt.Sprintf(format, args...), limit))
	}
	line("memory of a finished execution", "1024 B", "%.0f B", r.PerExecution)
	line("the same, restored", "1024 B", "%.0f B", r.RestoredHeap)
	pace := func(what string, p *state.Pace) {
		for _, s := range []struct {
			name   string
			spread *state.Spread
		}{{"applied", &p.Apply}, {"from due to applied", &p.Late}} {
			line("entries "+what+", "+s.name, "", "p50 %.2f, p99 %.2f, p99.9 %.2f, max %.2f ms of %d",
				s.spread.P50MS, s.spread.P99MS, s.spread.P999MS, s.spread.MaxMS, p.Entries)
		}
	}
	pace("alone", &r.Quiet)
	pace("beside other work", &r.Beside)
	pace("while a snapshot is written", &r.InSnapshot)
	line("restore of the snapshot", "10 s at 1000000", "%.2f s, %.2f s of processors", r.RestoreS, r.RestoreCPUS)
	if n := r.Node; n != nil {
		line("restart of a node, from exec to ready", "10 s at 1000000",
			"%.2f s, right after the restore %.2f s", n.RestartS, n.FirstS)
		line("the same, with entries behind the snapshot", "", "%.2f s, %d entries", n.ReplayS, n.Writes.Behind)
		late := n.Writes.Late
		line("requests while it wrote a snapshot", "", "p50 %.1f, p99 %.1f, p99.9 %.1f, max %.0f ms of %d, %d elections",
			late.P50MS, late.P99MS, late.P999MS, late.MaxMS, n.Writes.Requests, n.Writes.Elections)
		line("restore of a backup by its command", "60 s at 1000000", "%.2f s", n.RestoreS)
		line("resident memory of an idle node", "60 MiB", "%.1f MiB, %.1f MiB its own", n.IdleMiB, n.IdleOwnMiB)
		line("resident memory of the restarted node", "", "%.0f MiB, at most %.0f MiB", n.RestartedMiB, n.RestartedPeak)
	}
	line("restore of a backup", "60 s at 1000000", "%.2f s", r.BackupReadS)
	line("snapshot written", "", "%.2f s, %d MB", r.SnapshotS, r.SnapshotBytes/1_000_000)
	line("snapshot taken", "", "%.1f us", r.PublishUS)
	line("backup written", "", "%.2f s", r.BackupS)
	line("hash of the state", "", "%.0f us", r.HashUS)
	line("executions applied", "", "%.0f/s", r.AppliedPS)
	line("an execution read", "", "%.0f us", r.OneUS)
	line("newest 1000 of a history", "", "%.1f ms", r.PageUS/1000)
	line("oldest 1000 of a history, by offset", "", "%.1f ms", r.OffsetUS/1000)
	line("oldest of a history", "", "%.0f ms", r.DeepMS)
	line("history filtered by status", "", "%.0f ms", r.FilterMS)
	line("ledger verified", "", "%.0f ms", r.LedgerMS)
	line("garbage collection", "", "%.0f ms", r.GCMS)
	if err := printTable(w, t); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d finished executions, %d cores.\n", r.Executions, r.Cores)
	return err
}
