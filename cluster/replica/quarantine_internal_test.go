package replica

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/datadir"
	"berth/cluster/disk"
)

// TestQuarantineIsBounded fills the quarantine.
func TestQuarantineIsBounded(t *testing.T) {
	f, err := datadir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	q := Quarantine{dir: f}
	at := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	aside := func(bytes int, damage error) string {
		t.Helper()
		at = at.Add(time.Minute)
		if err := os.WriteFile(f.Path(datadir.RaftDir, disk.FileName), make([]byte, bytes), 0o600); err != nil {
			t.Fatal(err)
		}
		dir, err := q.SetAside(at, damage)
		if err := errors.Join(err, os.Mkdir(f.Path(datadir.RaftDir), datadir.DirMode)); err != nil {
			t.Fatal(err)
		}
		return filepath.Dir(dir)
	}
	left := func() (left []string) {
		entries, err := os.ReadDir(f.Path(quarantineDir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			left = append(left, f.Path(quarantineDir, e.Name()))
		}
		return left
	}
	restored := aside(1000, nil)
	var all []string
	for range 5 {
		all = append(all, aside(1000, errors.New("damaged")))
	}
	if _, err := q.newDir(at.Add(time.Second), errors.New("a crash came")); err != nil {
		t.Fatal(err)
	}
	removed, err := q.prune(1 << 30)
	if want := append([]string{restored}, all[2:]...); err != nil || len(removed) != 3 || !slices.Equal(left(), want) {
		t.Errorf("by number: left %v, removed %v, %v", left(), removed, err)
	}
	if _, err := q.prune(2100); err != nil || !slices.Equal(left(), append([]string{restored}, all[3:]...)) {
		t.Errorf("by size: left %v, %v", left(), err)
	}
	if _, err := q.prune(0); err != nil || !slices.Equal(left(), []string{restored, all[4]}) {
		t.Errorf("the newest stays: left %v, %v", left(), err)
	}
	if _, err := q.prune(KeepNone); err != nil || !slices.Equal(left(), []string{restored}) {
		t.Errorf("none stays: left %v, %v", left(), err)
	}
}

// TestEmptyReplicaVotesInNoTermBefore checks the first state of a server that rejoins:
// in the terms in which it may have voted it does not vote again.
func TestEmptyReplicaVotesInNoTermBefore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raft")
	for range 2 { // It can be made again.
		if err := makeEmptyReplica(dir, 7); err != nil {
			t.Fatal(err)
		}
	}
	s, err := disk.Open(dir, 0, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	term, err := s.GetUint64([]byte("CurrentTerm"))
	if err != nil || term != 7 {
		t.Errorf("it is in term %d, %v", term, err)
	}
	voted, err := s.GetUint64([]byte("LastVoteTerm"))
	if err != nil || voted != 7 {
		t.Errorf("it voted in term %d, %v", voted, err)
	}
	if candidate, err := s.Get([]byte("LastVoteCand")); err != nil || len(candidate) == 0 {
		t.Errorf("it voted for %q, %v", candidate, err)
	}
	if last, err := s.LastIndex(); err != nil || last != 0 {
		t.Errorf("it ends at entry %d, %v", last, err)
	}
	if has, err := raft.HasExistingState(s, s, raft.NewInmemSnapshotStore()); err != nil || !has {
		t.Errorf("a cluster could be made on it: %v, %v", has, err)
	}
}
