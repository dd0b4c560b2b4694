package leader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"berth/cluster/disk"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/snapshot"
	"berth/loop"
)

// Names and limits of scheduled backups.
const (
	backupPeriod = time.Minute // How often the leader checks whether one is due.
	backupSuffix = ".backup"
	backupTime   = "20060102T150405Z" // In the name, so that names are in the order of time.
	backupPart   = ".part"            // In the name of one that is not finished.
	partAge      = 24 * time.Hour     // Parts that a crash left are removed at this age.
	backupSlow   = 15 * time.Minute   // One that takes longer is logged.

	backupStep = 16 << 20 // Bytes written between two checks of the free space.
)

// BackupConfig has the settings of scheduled backups.
type BackupConfig struct {
	Every time.Duration // 0 for never.
	To    string        // The directory.
	Keep  int

	Cluster    compute.UUID
	Version    string                                       // Version of the program.
	View       func(ctx context.Context) (*fsm.View, error) // Everything acknowledged before the call.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Backups saves the state to a directory now and then. The names of the files there
// say when that was last done, so that a new leader needs no hand-over.
type Backups struct {
	cfg  BackupConfig
	free func(dir string) (free, total int64, err error)

	busy  atomic.Bool // One is being saved, perhaps to a disk that hangs.
	begun time.Time   // When; owned by scan.
	slow  bool        // That was logged.
	rests time.Time   // No attempt before: there was too little space.

	saved  prometheus.Gauge
	failed prometheus.Counter
}

// NewBackups returns a Backups for cfg.
func NewBackups(cfg BackupConfig) *Backups {
	b := &Backups{
		cfg: cfg, free: disk.Free,
		saved: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_backup_saved_timestamp_seconds",
			Help: "When the newest scheduled backup was saved, as its leader found; 0 elsewhere.",
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_backup_failures_total",
			Help: "Scheduled backups that this node could not save.",
		}),
	}
	every := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "berth_backup_every_seconds", Help: "How often a backup is to be saved; 0 for never.",
	})
	every.Set(cfg.Every.Seconds())
	cfg.Registerer.MustRegister(b.saved, b.failed, every)
	return b
}

// Lead saves backups during one term.
func (b *Backups) Lead(ctx context.Context, _ uint64) error {
	defer b.saved.Set(0)
	loop.Every(ctx, backupPeriod, func() { b.scan(ctx) })
	return nil
}

// scan saves a backup when one is due. A disk that hangs holds nothing else up:
// it is left behind, and no other backup is begun before it goes on.
func (b *Backups) scan(ctx context.Context) {
	if !b.busy.CompareAndSwap(false, true) {
		if took := b.cfg.Now().Sub(b.begun); took >= backupSlow && !b.slow {
			b.slow = true
			b.cfg.Logger.Error("backup slow: the disk may hang", "took", took.Round(time.Second))
		}
		return
	}
	b.begun, b.slow = b.cfg.Now(), false
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer b.busy.Store(false)
		if err := b.saveIfDue(ctx); err != nil && ctx.Err() == nil {
			b.failed.Inc()
			b.cfg.Logger.Error("backup not saved", "err", err)
		}
	}()
	timer := time.NewTimer(backupPeriod)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C: // Later scans wait for it.
	case <-ctx.Done():
	}
}

// saveIfDue saves a backup unless there is a new one, and removes those that are
// too many. One for which there is no space is tried again when the next is due.
func (b *Backups) saveIfDue(ctx context.Context) error {
	if err := os.MkdirAll(b.cfg.To, 0o700); err != nil {
		return err
	}
	names, err := b.tidy()
	if err != nil {
		return err
	}
	last := ""
	if n := len(names); n > 0 {
		last = names[n-1]
		newest, _ := b.stamp(last)
		b.saved.Set(float64(newest.Unix()))
		if b.cfg.Now().Sub(newest) < b.cfg.Every {
			return nil
		}
	}
	if b.cfg.Now().Before(b.rests) {
		return nil
	}
	start := time.Now() //nolint:forbidigo // A stopwatch.
	if err := b.save(ctx, last); err != nil {
		if disk.NoSpace(err) || compute.CodeOf(err) == compute.CodeNoSpace {
			b.rests = b.cfg.Now().Add(b.cfg.Every)
		}
		return err
	}
	b.saved.Set(float64(b.cfg.Now().Unix()))
	b.cfg.Logger.Info("backup saved", "took", time.Since(start).Round(time.Millisecond))
	_, err = b.tidy()
	return err
}

// checkSpace returns why no more bytes may be written: the file system has to
// keep some free, for it may be that of a server's data.
func (b *Backups) checkSpace(bytes int64) error {
	free, total, err := b.free(b.cfg.To)
	if err != nil {
		return err
	}
	keep := disk.Margin(total)
	if free >= bytes+keep {
		return nil
	}
	return compute.Errorf(compute.CodeNoSpace,
		"The file system of %s has %d MiB free: a backup needs %d MiB more and leaves %d MiB to others. "+
			"Free some space, or set backup.to to a directory of another file system.",
		b.cfg.To, free>>20, bytes>>20, keep>>20)
}

// limitedWriter writes as long as there is free space.
type limitedWriter struct {
	io.Writer

	checkSpace func(bytes int64) error
	left       int64 // To write before the next check.
}

func (r *limitedWriter) Write(p []byte) (int, error) {
	if r.left -= int64(len(p)); r.left < 0 {
		if err := r.checkSpace(backupStep); err != nil {
			return 0, err
		}
		r.left = backupStep
	}
	return r.Writer.Write(p)
}

// prefix is how the names of this cluster's backups begin.
func (b *Backups) prefix() string { return "berth-" + b.cfg.Cluster.String() + "-" }

// stamp returns when the backup of that name was saved. It returns false for
// names that save does not give, for backups of other clusters, and for times in
// the future, which a wrong clock has made.
func (b *Backups) stamp(name string) (at time.Time, ok bool) {
	rest, ours := strings.CutPrefix(name, b.prefix())
	rest, whole := strings.CutSuffix(rest, backupSuffix)
	if !ours || !whole {
		return at, false
	}
	at, err := time.Parse(backupTime, rest)
	return at, err == nil && at.Sub(b.cfg.Now()) <= compute.ClockTolerance
}

// tidy removes the oldest backups of this cluster beyond those that are kept, and
// what crashes left, and returns the names of the others, by time. It touches
// nothing that save has not named, nor what is of the future.
func (b *Backups) tidy() (names []string, err error) {
	entries, err := os.ReadDir(b.cfg.To) // By name.
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), b.prefix())
		switch {
		case !ours:
		case strings.Contains(rest, backupPart):
			info, err := e.Info()
			if err == nil && b.cfg.Now().Sub(info.ModTime()) > partAge {
				err = os.Remove(filepath.Join(b.cfg.To, e.Name()))
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
		default:
			if _, ok := b.stamp(e.Name()); ok {
				names = append(names, e.Name())
			}
		}
	}
	for len(names) > b.cfg.Keep {
		if err := os.Remove(filepath.Join(b.cfg.To, names[0])); err != nil {
			return nil, err
		}
		names = names[1:]
	}
	return names, nil
}

// save writes a backup, checks what is on disk then, and gives it its name: it
// appears whole or not at all. Last is the name of the one before, "" for none:
// about as much space is needed.
func (b *Backups) save(ctx context.Context, last string) error {
	if last != "" {
		info, err := os.Stat(filepath.Join(b.cfg.To, last))
		if err != nil {
			return err
		}
		if err := b.checkSpace(info.Size()); err != nil {
			return err
		}
	}
	view, err := b.cfg.View(ctx)
	if err != nil {
		return err
	}
	at := b.cfg.Now().UTC()
	path := filepath.Join(b.cfg.To, b.prefix()+at.Format(backupTime)+backupSuffix)
	f, err := os.CreateTemp(b.cfg.To, filepath.Base(path)+backupPart+"*") // Its mode is 0600.
	if err != nil {
		return err
	}
	err = b.write(f, view, at)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	dir, err := os.Open(b.cfg.To)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// write writes a backup to a file and reads it again. The kernel is asked to
// forget what it has in memory of it, so that the medium is read where it does.
func (b *Backups) write(f *os.File, view *fsm.View, at time.Time) error {
	w := &limitedWriter{Writer: f, checkSpace: b.checkSpace}
	if err := view.WriteBackup(w, b.cfg.Version, compute.InstantOf(at)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // A hint; not every file system takes it.
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := snapshot.CheckBackup(f); err != nil {
		return fmt.Errorf("the backup reads back differently from what was written: %w", err)
	}
	return nil
}
