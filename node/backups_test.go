package node_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/node"
)

// TestScheduledBackups looks day by day whether a backup is due.
func TestScheduledBackups(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	cluster := compute.UUID{15: 1}
	machine := fsm.New()
	frame, err := fsm.Encode(fsm.Bootstrap{
		ClusterID: cluster, Prices: map[string]compute.Price{"cpu": 15},
		Signing: compute.SigningKey{ID: "first", Public: []byte{1}, Sealed: []byte{2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	machine.ApplyFrames(7, frame)
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	b := node.NewBackups(node.BackupConfig{Every: 24 * time.Hour, To: dir, Keep: 2}, cluster, machine, func() time.Time { return now })
	names := func() (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, strings.TrimPrefix(e.Name(), "berth-"+cluster.String()+"-"))
		}
		return names
	}
	look := func(want ...string) {
		t.Helper()
		b.Look(t.Context())
		if got := names(); !slices.Equal(got, want) {
			t.Errorf("at %s: %v, want %v", now, got, want)
		}
	}
	look("20260501T000000Z.backup")
	now = now.Add(23 * time.Hour)
	look("20260501T000000Z.backup")
	now = now.Add(time.Hour)
	look("20260501T000000Z.backup", "20260502T000000Z.backup")
	now = now.Add(24 * time.Hour)
	look("20260502T000000Z.backup", "20260503T000000Z.backup")
	newest := filepath.Join(dir, "berth-"+cluster.String()+"-20260503T000000Z.backup")
	if _, err := node.VerifyBackup(newest); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(newest); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if b.Failures() != 0 {
		t.Errorf("%v failed", b.Failures())
	}

	// What is no backup of this cluster stays; what a crash left goes.
	mine, old := filepath.Join(dir, "mine"), newest+".part123"
	for _, path := range []string{mine, old} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(old, now.Add(-48*time.Hour), now.Add(-48*time.Hour)); err != nil {
		t.Fatal(err)
	}
	look("20260502T000000Z.backup", "20260503T000000Z.backup", "mine")
	for _, name := range []string{"20270101T000000Z.backup", "20260503T000000Z-keep.backup"} {
		if err := os.WriteFile(filepath.Join(dir, "berth-"+cluster.String()+"-"+name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	look("20260502T000000Z.backup", "20260503T000000Z-keep.backup", "20260503T000000Z.backup", "20270101T000000Z.backup", "mine")

	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // There is no directory any more.
		t.Fatal(err)
	}
	b.Look(t.Context())
	if b.Failures() != 1 {
		t.Errorf("%v failed, want 1", b.Failures())
	}
}
