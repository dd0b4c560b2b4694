package state

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"berth/bench/usage"
	"berth/compute"
	"berth/fsm"
)

// Limits and defaults of a measurement.
const (
	MaxExecutions     = 10_000_000
	DefaultExecutions = 200_000

	buffer     = 1 << 20
	historyRow = 1000 // Rows of the history page.
)

// Config configures a measurement.
type Config struct {
	Executions int
	Seed       uint64
	Dir        string // Holds the snapshot during the run; "" for a temporary directory.
	Program    string // A berth program, for a real node with the state; "" for none.

	Now      func() time.Time                 // Nil for time.Now.
	Progress func(done, all int, what string) // Nil for none.
}

// Validate returns an error that lists the invalid fields of c.
func (c Config) Validate() error {
	if c.Executions < 1 || c.Executions > MaxExecutions {
		return fmt.Errorf("executions: %d is not 1 to %d", c.Executions, MaxExecutions)
	}
	return nil
}

// Steps of a measurement. Those from StepNode on need a real node.
const (
	StepHistory  = "history"
	StepEntries  = "entries"
	StepSnapshot = "snapshot"
	StepReads    = "reads"
	StepBackup   = "backup"
	StepRestore  = "restore"

	StepNode    = "node" // Runs first, if there is a node.
	StepRestart = "restart"
	StepWrites  = "writes"
	StepReplay  = "replay"
)

// Report is the result of a measurement. Times are wall time.
type Report struct {
	Executions int      `json:"executions"`
	Cores      int      `json:"cores"`
	Seed       uint64   `json:"seed"`
	Steps      []string `json:"steps"` // The finished steps. The fields of others are unset.

	HeapBytes     int64   `json:"heap_bytes"`         // Live heap of the whole state.
	PerExecution  float64 `json:"bytes_per_finished"` // HeapBytes per execution.
	SnapshotBytes int64   `json:"snapshot_bytes"`
	AppliedPS     float64 `json:"executions_applied_per_s"`

	Quiet      FixedRate `json:"entries_quiet"`       // Alone.
	Beside     FixedRate `json:"entries_beside_work"` // While another goroutine computed.
	InSnapshot FixedRate `json:"entries_in_snapshot"` // While a snapshot was written.
	SnapshotS  float64   `json:"snapshot_s"`          // Written and synced.
	PublishUS  float64   `json:"snapshot_taken_us"`   // The time that Raft's goroutine is blocked.
	HashUS     float64   `json:"hash_us"`

	RestoreS     float64 `json:"restore_s"` // From the file, with every check, to a published view.
	RestoredHeap float64 `json:"restored_bytes_per_finished"`
	RestoreCPUS  float64 `json:"restore_cpu_s"` // Its processor time, over all cores.
	BackupS      float64 `json:"backup_s"`
	BackupReadS  float64 `json:"backup_read_s"`

	PageUS   float64 `json:"history_page_us"`       // The newest thousand of an organization.
	DeepMS   float64 `json:"history_oldest_ms"`     // The oldest of an organization, after all others.
	FilterMS float64 `json:"history_filtered_ms"`   // Failed executions, after all others.
	LedgerMS float64 `json:"ledger_verified_ms"`    // Hash chain and sums of an organization.
	OneUS    float64 `json:"execution_read_us"`     // One finished execution by its id.
	OffsetUS float64 `json:"history_offset_us"`     // The oldest thousand, by an offset past all others.
	GCMS     float64 `json:"garbage_collection_ms"` // A full collection on all cores.

	Node *NodeReport `json:"node,omitempty"` // Set for a real node.
}

// measurement is a running measurement.
type measurement struct {
	cfg    Config
	filler *filler
	report Report
	file   string // The snapshot.
	saved  string // The backup.
	node   *node  // Nil for none.
}

// step is one part of a measurement.
type step struct {
	what string
	do   func(context.Context) error
}

// steps returns the steps in order.
func (m *measurement) steps() []step {
	steps := []step{
		{StepHistory, m.fill},
		{StepEntries, m.quiet},
		{StepSnapshot, m.snapshot},
		{StepReads, m.reads},
		{StepBackup, m.backup},
		{StepRestore, m.restore},
	}
	if m.cfg.Program == "" {
		return steps
	}
	return slices.Concat([]step{{StepNode, m.found}}, steps, []step{
		{StepRestart, m.restart},
		{StepWrites, m.writes},
		{StepReplay, m.replay},
	})
}

// Run runs a measurement. With an error it returns the results so far.
func Run(ctx context.Context, cfg Config) (_ Report, err error) {
	if err := cfg.Validate(); err != nil {
		return Report{}, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Progress == nil {
		cfg.Progress = func(int, int, string) {}
	}
	if cfg.Dir == "" {
		if cfg.Dir, err = os.MkdirTemp("", "berth-bench-"); err != nil {
			return Report{}, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(cfg.Dir)) }()
	}
	m := &measurement{cfg: cfg, file: filepath.Join(cfg.Dir, "state.snap"), saved: filepath.Join(cfg.Dir, "backup")}
	defer func() { err = errors.Join(err, m.node.end(), os.RemoveAll(m.saved)) }()
	m.report = Report{Executions: cfg.Executions, Cores: runtime.GOMAXPROCS(0), Seed: cfg.Seed}
	steps := m.steps()
	for i, step := range steps {
		cfg.Progress(i, len(steps), step.what)
		if err := step.do(ctx); err != nil {
			return m.report, fmt.Errorf("%s: %w", step.what, err)
		}
		m.report.Steps = append(m.report.Steps, step.what)
	}
	return m.report, nil
}

// heap returns the live bytes of the heap.
func heap() int64 {
	runtime.GC()
	runtime.GC() // Frees memory that finalizers and pools released.
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// took returns the duration of do.
func (m *measurement) took(do func() error) (time.Duration, error) {
	start := m.cfg.Now()
	err := do()
	return m.cfg.Now().Sub(start), err
}

func (m *measurement) fill(ctx context.Context) error {
	before := heap()
	machine, err := m.empty()
	if err != nil {
		return err
	}
	m.filler = newFiller(machine, m.cfg.Seed)
	if err := m.filler.found(); err != nil {
		return err
	}
	took, err := m.took(func() error {
		return m.filler.fill(ctx, m.cfg.Executions, func(done int) {
			m.cfg.Progress(done, m.cfg.Executions, "executions")
		})
	})
	if err != nil {
		return err
	}
	m.report.AppliedPS = float64(m.cfg.Executions) / took.Seconds()
	m.report.HeapBytes = heap() - before
	m.report.PerExecution = float64(m.report.HeapBytes) / float64(m.cfg.Executions)
	gc, _ := m.took(func() error { runtime.GC(); return nil })
	m.report.GCMS = ms(gc)
	return nil
}

// write writes to a file through a buffer, and syncs it.
func (m *measurement) write(name string, to func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(file, buffer)
	err = to(w)
	return errors.Join(err, w.Flush(), file.Sync(), file.Close())
}

// snapshot writes a snapshot while entries are applied.
func (m *measurement) snapshot(ctx context.Context) error {
	taken, _ := m.took(func() error { _, err := m.filler.machine.Snapshot(); return err })
	m.report.PublishUS = us(taken)
	view := m.filler.machine.View()
	hashed, _ := m.took(func() error { view.Hash(); return nil })
	m.report.HashUS = us(hashed)
	done := make(chan struct{})
	var took time.Duration
	var failed error
	go func() {
		defer close(done)
		took, failed = m.took(func() error { return m.write(m.file, view.WriteSnapshot) })
	}()
	rate, err := m.atFixedRate(ctx, done)
	<-done
	m.report.InSnapshot, m.report.SnapshotS = rate, took.Seconds()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	stat, err := os.Stat(m.file)
	if err == nil {
		m.report.SnapshotBytes = stat.Size()
	}
	return err
}

// reads measures the reads of history, ledger and executions.
func (m *measurement) reads(context.Context) error {
	view, org := m.filler.machine.View(), m.filler.actors[0].Org
	var last *compute.Execution
	page, _ := m.took(func() error {
		n := 0
		for e := range view.History(org, fsm.HistoryFilter{}) {
			if n++; n == historyRow {
				break
			}
			last = e
		}
		return nil
	})
	m.report.PageUS = us(page)
	total, _, _ := view.Totals(org)
	offset, _ := m.took(func() error {
		for range view.History(org, fsm.HistoryFilter{Skip: max(total-historyRow, 0)}) {
		}
		return nil
	})
	m.report.OffsetUS = us(offset)
	one, _ := m.took(func() error { view.AnyExecution(last.ID); return nil })
	m.report.OneUS = us(one)
	deep, _ := m.took(func() error {
		for range view.History(org, fsm.HistoryFilter{To: m.filler.first + 60_000}) {
		}
		return nil
	})
	m.report.DeepMS = ms(deep)
	failed := compute.StatusSystemFailure
	filtered, _ := m.took(func() error {
		for range view.History(org, fsm.HistoryFilter{Status: &failed}) {
		}
		return nil
	})
	m.report.FilterMS = ms(filtered)
	verified, err := m.took(func() error { return view.VerifyLedger(org) })
	m.report.LedgerMS = ms(verified)
	return err
}

func (m *measurement) backup(context.Context) error {
	view := m.filler.machine.View()
	m.filler = nil // Frees memory for the other steps.
	took, err := m.took(func() error {
		return m.write(m.saved, func(w io.Writer) error { return view.WriteBackup(w, "bench", view.Now()) })
	})
	if err != nil {
		return err
	}
	m.report.BackupS = took.Seconds()
	view = nil
	runtime.GC()
	took, err = m.took(func() error {
		file, err := os.Open(m.saved)
		if err != nil {
			return err
		}
		_, _, err = fsm.ReadBackup(file)
		return errors.Join(err, file.Close())
	})
	m.report.BackupReadS = took.Seconds()
	return err
}

func (m *measurement) restore(context.Context) error {
	before := heap()
	machine := fsm.New()
	busy := usage.CPU()
	took, err := m.took(func() error {
		file, err := os.Open(m.file)
		if err != nil {
			return err
		}
		return machine.Restore(file)
	})
	if err != nil {
		return err
	}
	m.report.RestoreS, m.report.RestoreCPUS = took.Seconds(), (usage.CPU() - busy).Seconds()
	m.report.RestoredHeap = float64(heap()-before) / float64(m.cfg.Executions)
	runtime.KeepAlive(machine)
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
