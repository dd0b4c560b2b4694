package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/api/wire"
	"berth/cluster/file"
	"berth/compute"
	"berth/fsm"
	"berth/loop"
)

// exportPeriod is how often new lines are looked for.
const exportPeriod = time.Second

// Config holds the settings and dependencies of an Export.
type Config struct {
	File     string // Gets the lines.
	Position string // The file that remembers up to where they are exported.
	View     func() *fsm.View
	// Line returns a line as the API answers it.
	Line       func(view *fsm.View, line *compute.AuditRecord) wire.AuditLine
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Export appends the lines of audit trails to a file.
type Export struct {
	cfg     Config
	failing prometheus.Gauge

	index   uint64                   // Lines up to this log entry are in the file.
	written map[compute.OrgID]uint64 // The last line of each trail that is, as far as is known.
}

// position is the content of Config.Position.
type position struct {
	Index uint64 `json:"index"`
}

// Line is a line of the file. Org is the organization whose trail it belongs to, null for
// the cluster's.
type Line struct {
	Org *compute.OrgID `json:"org"`
	wire.AuditLine
}

// Gap stands in the file for lines that had left the state before they were exported.
type Gap struct {
	Org    *compute.OrgID `json:"org"`
	Gap    bool           `json:"gap"`    // True.
	Before uint64         `json:"before"` // The number of the line behind the gap.
}

// Open returns an Export that goes on where the last one ended. The file must be writable.
func Open(cfg Config) (*Export, error) {
	e := &Export{cfg: cfg, written: make(map[compute.OrgID]uint64)}
	data, err := os.ReadFile(cfg.Position)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open audit export: %w", err)
	}
	var at position
	if err == nil && json.Unmarshal(data, &at) != nil {
		cfg.Logger.Warn("audit trails exported again: it is not known what was", "path", cfg.Position)
	}
	e.index = at.Index
	f, err := e.file()
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("open audit export: %w", err)
	}
	e.failing = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "berth_audit_export_failing", Help: "Whether new lines of audit trails could not be written to log.audit_file.",
	})
	cfg.Registerer.MustRegister(e.failing)
	return e, nil
}

// Run exports new lines until ctx ends.
func (e *Export) Run(ctx context.Context) error {
	failed := false
	loop.Every(ctx, exportPeriod, func() {
		err := e.Round()
		if err != nil && !failed {
			e.cfg.Logger.Error("audit trails not exported", "err", err)
		}
		failed = err != nil
		e.failing.Set(0)
		if failed {
			e.failing.Set(1)
		}
	})
	return nil
}

// Round exports the lines that the newest state of this server has and the file lacks.
func (e *Export) Round() error {
	view := e.cfg.View()
	written := make(map[compute.OrgID]uint64)
	for org, trail := range view.Trails() {
		if e.written[org] != trail.Lines {
			written[org] = trail.Lines
		}
	}
	if view.Index() <= e.index || len(written) == 0 {
		return nil
	}
	err := e.append(view.Index(), func(w io.Writer) error {
		to := json.NewEncoder(w)
		for org := range written {
			if err := e.trail(to, view, org); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("append to %s: %w", e.cfg.File, err)
	}
	e.index = view.Index()
	maps.Copy(e.written, written)
	return nil
}

// trail writes the new lines of a trail.
func (e *Export) trail(to *json.Encoder, view *fsm.View, org compute.OrgID) error {
	var of *compute.OrgID
	if !org.IsZero() {
		of = &org
	}
	// Whether the line before the first new one is known: it is in the file, or there is none.
	joined := view.Trail(org).Trimmed == 0 || e.index == 0
	var lines []*compute.AuditRecord
	for line := range view.Audit(org, 0) {
		if line.Index <= e.index {
			joined = true
			break
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return nil
	}
	slices.Reverse(lines)
	if !joined && e.written[org]+1 != lines[0].Seq {
		e.cfg.Logger.Error("lines of an audit trail lost: they left the state before they were exported", "org", org)
		if err := to.Encode(Gap{Org: of, Gap: true, Before: lines[0].Seq}); err != nil {
			return err
		}
	}
	for _, line := range lines {
		if err := to.Encode(Line{Org: of, AuditLine: e.cfg.Line(view, line)}); err != nil {
			return err
		}
	}
	return nil
}

// file opens the file for lines, which ends with a whole one or is empty.
func (e *Export) file() (*os.File, error) {
	f, err := os.OpenFile(e.cfg.File, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err = endLine(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// endLine ends the line that a crash has left half written.
func endLine(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	case info.Size() == 0:
		return nil
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.WriteString("\n")
	return err
}

// append has write append the lines up to a log entry, and makes them durable. If that
// fails, the file is as before.
func (e *Export) append(index uint64, write func(io.Writer) error) (err error) {
	f, err := e.file()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(f)
	if err = write(buffered); err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = e.save(position{index})
	}
	if err != nil {
		return errors.Join(err, f.Truncate(info.Size()))
	}
	return nil
}

// save remembers up to where lines are exported.
func (e *Export) save(at position) error {
	data, err := json.Marshal(at)
	if err != nil {
		return err
	}
	return file.Write(e.cfg.Position, data)
}
