package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"berth/compute"
)

// segmentsOf returns the files of a store's journal.
func segmentsOf(t *testing.T, s *Store) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.journal.dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestPowerCut takes from small blobs what a power cut may take of files that were not
// synced: all, a part, or the content behind the size. All are there after a restart.
func TestPowerCut(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	var hashes []compute.Hash
	for i := range 12 {
		hashes = append(hashes, mustPut(t, s, fmt.Sprint("small blob ", i)))
	}
	for i, h := range hashes {
		var err error
		switch i % 4 {
		case 0:
			err = os.Remove(s.path(h))
		case 1:
			err = os.Truncate(s.path(h), 3)
		case 2:
			err = os.WriteFile(s.path(h), make([]byte, 12), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	tail := segmentsOf(t, s)
	if len(tail) != 1 {
		t.Fatalf("got segments %v", tail)
	}
	torn := appendRecord(nil, compute.Hash{1}, []byte("never acknowledged"))
	if err := appendTo(tail[0], torn[:len(torn)-4]); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir)
	for i, h := range hashes {
		if got, err := s.Get(h); err != nil || string(got) != fmt.Sprint("small blob ", i) {
			t.Errorf("blob %d: got %q, %v", i, got, err)
		}
	}
	if left := segmentsOf(t, s); len(left) != 0 {
		t.Errorf("segments %v are left", left)
	}
	mustPut(t, s, "another")
}

func appendTo(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(data)
	return err
}

// TestDamagedRecord flips a bit in one record's data: those behind it are restored.
func TestDamagedRecord(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	first, second := mustPut(t, s, "first blob"), mustPut(t, s, "second blob")
	segment := segmentsOf(t, s)[0]
	data, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	data[recordHead+2] ^= 4
	if err := os.WriteFile(segment, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, h := range []compute.Hash{first, second} {
		if err := os.Remove(s.path(h)); err != nil {
			t.Fatal(err)
		}
	}
	s = mustOpen(t, dir)
	if _, err := s.Get(first); compute.CodeOf(err) != compute.CodeNotFound {
		t.Errorf("damaged: got %v", err)
	}
	if got, err := s.Get(second); err != nil || string(got) != "second blob" {
		t.Errorf("behind it: got %q, %v", got, err)
	}
}

// TestSegmentsAreRemoved puts more than fits in several segments, from several goroutines.
func TestSegmentsAreRemoved(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	s.journal.limit = 4 << 10
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for k := range 20 {
				text := fmt.Sprintf("%1000d/%d", i, k)
				hash, err := s.Put([]byte(text))
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := s.Get(hash); err != nil || string(got) != text {
					t.Errorf("got %d bytes, %v", len(got), err)
				}
			}
		})
	}
	group.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left := segmentsOf(t, s); len(left) > 1 {
		t.Errorf("segments %v are left", left)
	}
}

// TestJournalThatCannotBeWritten: a put fails, and the next one succeeds.
func TestJournalThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	kept := mustPut(t, s, "kept")
	if err := s.journal.segment.file.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put([]byte("refused")); err == nil {
		t.Error("a put without a journal succeeded")
	}
	after := mustPut(t, s, "after")
	for _, h := range []compute.Hash{kept, after} {
		_ = os.Remove(s.path(h))
	}
	s = mustOpen(t, dir)
	for _, h := range []compute.Hash{kept, after} {
		if !s.Has(h) {
			t.Errorf("%s is lost", Name(h))
		}
	}
}
