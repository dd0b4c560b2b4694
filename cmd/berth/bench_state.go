package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"berth/bench/state"
)

// stateFlags are the flags of berth bench state.
type stateFlags struct {
	config     state.Config
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
belongs to it, how long a snapshot takes and how long the longest entry takes
meanwhile, and how long a restore and the reading of a backup take, with their checks.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.config.Executions, "executions", state.DefaultExecutions, "finished `executions`")
	flags.Uint64Var(&f.config.Seed, "seed", 42, "`seed` of what is executed")
	flags.StringVar(&f.config.Dir, "dir", "", "empty `directory` for the snapshot (default: a temporary one)")
	flags.BoolVar(&f.jsonOutput, "json", false, "print JSON")
	return cmd
}

func (f *stateFlags) run(cmd *cobra.Command) error {
	if err := f.config.Validate(); err != nil {
		return &exit{code: exitUsage, err: err}
	}
	f.config.Progress = benchProgress(cmd.ErrOrStderr())
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
	line("longest entry while a snapshot is written", "5 ms", "%.2f ms of %d entries", r.StallMS, r.Entries)
	line("longest entry otherwise", "", "%.2f ms", r.AppliedMS)
	line("restart: restore of the snapshot", "10 s at 1000000", "%.2f s, %.2f s of processors", r.RestoreS, r.RestoreCPUS)
	line("restore of a backup", "60 s at 1000000", "%.2f s", r.BackupReadS)
	line("snapshot written", "", "%.2f s, %d MB", r.SnapshotS, r.SnapshotBytes/1_000_000)
	line("snapshot taken", "", "%.1f us", r.PublishUS)
	line("backup written", "", "%.2f s", r.BackupS)
	line("hash of the state", "", "%.0f us", r.HashUS)
	line("executions applied", "", "%.0f/s", r.AppliedPS)
	line("an execution read", "", "%.0f us", r.OneUS)
	line("newest 1000 of a history", "", "%.1f ms", r.PageUS/1000)
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
