package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/api/wire"
	"berth/cluster/file"
	"berth/compute"
	"berth/fsm"
	"berth/loop"
)

// Times of an export.
const (
	exportPeriod = time.Second // How often the state is compared with what is exported.
	mostBackoff  = time.Minute // Between tries while the file cannot be written.
)

// Config holds the settings and dependencies of an Export.
type Config struct {
	File     string // Gets the lines.
	Position string // The file that remembers up to where they are exported.
	View     func() *fsm.View
	// Line returns a line as the API answers it.
	Line func(view *fsm.View, line *compute.AuditRecord) wire.AuditLine
	// Free returns how many bytes the file system of a file has free, and how many of them are
	// left to others.
	Free       func(name string) (free, margin int64, err error)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Export appends the lines of audit trails to a file.
type Export struct {
	cfg     Config
	metrics *metrics

	at      position                 // Lines up to there are in the file.
	unsaved bool                     // The position on the disk is older than the last line in the file.
	written map[compute.OrgID]uint64 // The last line of each trail that is in the file, as far as is known.
}

// position is the content of Config.Position. A restored cluster has another epoch, in
// which indexes are lower.
type position struct {
	Epoch uint64 `json:"epoch"`
	Index uint64 `json:"index"`
}

// Line is a line of the file. Org is the organization whose trail it belongs to, null for
// the cluster's.
type Line struct {
	Org *compute.OrgID `json:"org"`
	wire.AuditLine
}

// Gap stands in the file where lines may be missing, which had left the state before they
// were exported.
type Gap struct {
	Org    *compute.OrgID `json:"org"`
	Gap    bool           `json:"gap"`    // True.
	Before uint64         `json:"before"` // The number of the line behind the gap.
}

// Open returns an Export that goes on where the last one ended.
func Open(cfg Config) (*Export, error) {
	e := &Export{cfg: cfg, metrics: newMetrics(cfg.Registerer), written: make(map[compute.OrgID]uint64)}
	data, err := os.ReadFile(cfg.Position)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("open audit export: %w", err)
	case json.Unmarshal(data, &e.at) != nil:
		cfg.Logger.Warn("audit export position damaged, exporting all lines again", "path", cfg.Position)
		e.at = position{}
	}
	return e, nil
}

// Run exports new lines until ctx ends.
func (e *Export) Run(ctx context.Context) error {
	wait := exportPeriod
	for loop.Sleep(ctx, wait) {
		err := e.Round(ctx)
		switch {
		case err == nil:
			wait = exportPeriod
			e.metrics.failing.Set(0)
		case ctx.Err() == nil:
			e.cfg.Logger.Error("audit trails not exported", "err", err)
			wait = min(2*wait, mostBackoff)
			e.metrics.failing.Set(1)
		}
	}
	return nil
}

// Round exports the lines that the newest state of this server has and the file lacks, one
// trail after the other. After an error it goes on with the trail that failed.
func (e *Export) Round(ctx context.Context) error {
	view := e.cfg.View()
	if epoch := view.ClusterEpoch(); epoch > e.at.Epoch {
		e.at = position{Epoch: epoch} // The cluster was restored: some lines come twice.
		clear(e.written)
	}
	if view.Index() <= e.at.Index {
		return e.save()
	}
	for org, trail := range view.Trails() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.written[org] == trail.Lines {
			continue
		}
		count, err := e.trail(view, org)
		if err != nil {
			return fmt.Errorf("append to %s: %w", e.cfg.File, err)
		}
		e.written[org], e.unsaved = trail.Lines, e.unsaved || count > 0
	}
	e.at.Index = view.Index()
	return e.save()
}

// trail writes the new lines of a trail, and returns how many there are.
func (e *Export) trail(view *fsm.View, org compute.OrgID) (count int, err error) {
	var of *compute.OrgID
	if !org.IsZero() {
		of = &org
	}
	var lines []*compute.AuditRecord
	last := e.written[org] // The line before the first new one, if that is known.
	for line := range view.Audit(org, 0) {
		if line.Index <= e.at.Index || line.Seq <= last {
			last = max(last, line.Seq)
			break
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return 0, nil
	}
	slices.Reverse(lines)
	if missing := lines[len(lines)-1].Seq - last - uint64(len(lines)); missing > 0 {
		e.cfg.Logger.Warn("lines of an audit trail may be missing: they left the state before they were exported",
			"org", org, "count", missing)
	}
	return len(lines), e.append(func(w io.Writer) error {
		to := json.NewEncoder(w)
		for _, line := range lines {
			if line.Seq != last+1 {
				if err := to.Encode(Gap{Org: of, Gap: true, Before: line.Seq}); err != nil {
					return err
				}
			}
			last = line.Seq
			if err := to.Encode(Line{Org: of, AuditLine: e.cfg.Line(view, line)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// append has write append to the file, and makes that durable. If that fails, the file is
// as before.
func (e *Export) append(write func(io.Writer) error) (err error) {
	var lines bytes.Buffer
	if err := write(&lines); err != nil {
		return err
	}
	f, err := os.OpenFile(e.cfg.File, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := e.checkSpace(int64(lines.Len())); err != nil {
		return err
	}
	size, err := endLine(f)
	if err != nil {
		return err
	}
	if _, err = lines.WriteTo(f); err == nil {
		err = f.Sync()
	}
	if err == nil && size == 0 {
		err = file.SyncDir(filepath.Dir(e.cfg.File))
	}
	if err != nil {
		return errors.Join(err, f.Truncate(size))
	}
	return nil
}

// checkSpace returns why no more bytes may be written: the state of the node may be on the
// same file system.
func (e *Export) checkSpace(bytes int64) error {
	free, margin, err := e.cfg.Free(e.cfg.File)
	if err != nil || free >= bytes+margin {
		return err
	}
	return compute.Errorf(compute.CodeNoSpace,
		"The file system of %s has %d MiB free, of which the export of audit trails leaves %d MiB to others. "+
			"Free some space, or set log.audit_file to a file on another file system.",
		e.cfg.File, free>>20, margin>>20)
}

// endLine ends the line that a crash has left half written. It returns the size of the file.
func endLine(f *os.File) (size int64, err error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return 0, err
	case !info.Mode().IsRegular():
		return 0, errors.New("it is not a regular file")
	case info.Size() == 0:
		return 0, nil
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return info.Size(), err
	}
	n, err := f.WriteString("\n")
	return info.Size() + int64(n), err
}

// save remembers up to where lines are exported, unless there were none since the last time.
func (e *Export) save() error {
	if !e.unsaved {
		return nil
	}
	data, err := json.Marshal(e.at)
	if err == nil {
		err = file.Write(e.cfg.Position, data)
	}
	if err != nil {
		return fmt.Errorf("save position: %w", err)
	}
	e.unsaved = false
	return nil
}
