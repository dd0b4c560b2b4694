package leader

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// testBackups are the backups of a machine in a directory.
type testBackups struct {
	*Backups

	dir     string
	cluster compute.UUID
}

// newBackups returns the backups of a cluster once a day, of which two are kept.
func newBackups(t *testing.T, now func() time.Time) (*testBackups, *fsm.FSM) {
	t.Helper()
	b := &testBackups{dir: filepath.Join(t.TempDir(), "backups"), cluster: compute.UUID{15: 1}}
	machine := fsm.New()
	frame, err := command.Encode(command.Bootstrap{
		ClusterID: b.cluster, Prices: map[string]compute.Price{"cpu": 15},
		Signing: compute.SigningKey{ID: "first", Public: []byte{1}, Sealed: []byte{2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	machine.ApplyFrames(7, frame)
	b.Backups = NewBackups(BackupConfig{
		Every: 24 * time.Hour, To: b.dir, Keep: 2, Cluster: b.cluster, Version: "test",
		View: func(context.Context) (*fsm.View, error) { return machine.View(), nil },
		Now:  now, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	return b, machine
}

// failures returns how many backups failed.
func (b *testBackups) failures() float64 { return testutil.ToFloat64(b.failed) }

// logged calls heard with each message that the backups log.
type logged struct {
	slog.Handler

	heard func(message string)
}

func (logged) Enabled(context.Context, slog.Level) bool { return true }

func (l logged) Handle(_ context.Context, r slog.Record) error {
	l.heard(r.Message)
	return nil
}

// names returns the names in the directory, without their common prefix.
func (b *testBackups) names(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, strings.TrimPrefix(e.Name(), "berth-"+b.cluster.String()+"-"))
	}
	return names
}

// mustVerify holds that a backup can be read to its end.
func mustVerify(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, machine, err := fsm.ReadBackup(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := machine.View().Check(); err != nil {
		t.Error(err)
	}
}

// TestScheduledBackups checks day by day whether a backup is due.
func TestScheduledBackups(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	b, _ := newBackups(t, func() time.Time { return now })
	dir, cluster := b.dir, b.cluster
	scan := func(want ...string) {
		t.Helper()
		b.scan(t.Context())
		if got := b.names(t); !slices.Equal(got, want) {
			t.Errorf("at %s: %v, want %v", now, got, want)
		}
	}
	scan("20260501T000000Z.backup")
	now = now.Add(23 * time.Hour)
	scan("20260501T000000Z.backup")
	now = now.Add(time.Hour)
	scan("20260501T000000Z.backup", "20260502T000000Z.backup")
	now = now.Add(24 * time.Hour)
	scan("20260502T000000Z.backup", "20260503T000000Z.backup")
	newest := filepath.Join(dir, "berth-"+cluster.String()+"-20260503T000000Z.backup")
	mustVerify(t, newest)
	if info, err := os.Stat(newest); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if b.failures() != 0 {
		t.Errorf("%v failed", b.failures())
	}

	// Other files stay; remains of a crash are removed.
	mine, old := filepath.Join(dir, "mine"), newest+".part123"
	for _, path := range []string{mine, old} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(old, now.Add(-48*time.Hour), now.Add(-48*time.Hour)); err != nil {
		t.Fatal(err)
	}
	scan("20260502T000000Z.backup", "20260503T000000Z.backup", "mine")
	for _, name := range []string{"20270101T000000Z.backup", "20260503T000000Z-keep.backup"} {
		if err := os.WriteFile(filepath.Join(dir, "berth-"+cluster.String()+"-"+name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	scan("20260502T000000Z.backup", "20260503T000000Z-keep.backup", "20260503T000000Z.backup", "20270101T000000Z.backup", "mine")

	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // There is no directory any more.
		t.Fatal(err)
	}
	b.scan(t.Context())
	if b.failures() != 1 {
		t.Errorf("%v failed, want 1", b.failures())
	}
}

// TestSlowBackup checks that a backup that takes long is reported once, is no
// failure, and that the next one waits for it.
func TestSlowBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, machine := newBackups(t, time.Now)
		var told []string
		b.cfg.Logger = slog.New(logged{slog.DiscardHandler, func(message string) { told = append(told, message) }})
		goOn := make(chan struct{})
		b.cfg.View = func(context.Context) (*fsm.View, error) {
			<-goOn
			return machine.View(), nil
		}
		for range 40 { // Minutes.
			b.scan(t.Context())
			<-time.After(time.Minute)
		}
		if len(told) != 1 || b.failures() != 0 {
			t.Errorf("40 minutes of a backup were told as %q and %v failures, want one line and none", told, b.failures())
		}
		close(goOn)
		synctest.Wait()
		b.scan(t.Context())
		if names := b.names(t); len(names) != 1 || b.failures() != 0 {
			t.Errorf("after it went on there are %q and %v failures", names, b.failures())
		}
	})
}

// TestBackupLeavesRoom holds that a backup does not fill a file system, which may
// be that of a server's data, and is not tried again before the next is due.
func TestBackupLeavesRoom(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	b, _ := newBackups(t, func() time.Time { return now })
	const total, margin = 10 << 30, 512 << 20
	free := int64(margin - 1)
	b.free = func(string) (int64, int64, error) { return free, total, nil }
	scan := func(wait time.Duration, saved int, failures float64) {
		t.Helper()
		now = now.Add(wait)
		b.scan(t.Context())
		if names := b.names(t); len(names) != saved || b.failures() != failures {
			t.Errorf("at %s with %d free there are %q and %v failures, want %d and %v",
				now, free, names, b.failures(), saved, failures)
		}
	}
	scan(0, 0, 1)
	scan(time.Minute, 0, 1)
	scan(time.Hour, 0, 1)
	free = total / 2
	scan(23*time.Hour, 1, 1)
	free = margin // The one before has some bytes.
	scan(24*time.Hour, 1, 2)
	scan(time.Minute, 1, 2)
	free = total / 2
	scan(24*time.Hour, 2, 2)
}
