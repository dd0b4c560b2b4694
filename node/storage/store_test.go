package storage

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/compute"
)

func mustOpen(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustPut(t testing.TB, s *Store, text string) compute.Hash {
	t.Helper()
	hash, err := s.Put([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func TestPutGetDelete(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	for _, text := range []string{"", "x", strings.Repeat("long ", 1<<20)} {
		hash := mustPut(t, s, text)
		if hash != sha256.Sum256([]byte(text)) {
			t.Fatalf("got name %s", Name(hash))
		}
		s = mustOpen(t, dir)
		for range 2 {
			got, err := s.Get(hash)
			if err != nil || string(got) != text || !s.Has(hash) {
				t.Fatalf("got %d bytes, %v", len(got), err)
			}
			mustPut(t, s, text)
		}
		name := Name(hash)
		info, err := os.Stat(filepath.Join(dir, "blobs", name[:2], name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("got file %v, %v", info, err)
		}
		for range 2 {
			if err := s.Delete(hash); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Get(hash); compute.CodeOf(err) != compute.CodeNotFound || s.Has(hash) {
			t.Errorf("after delete: got %v", err)
		}
	}
	if _, err := s.Put(make([]byte, MaxBlob+1)); compute.CodeOf(err) != compute.CodeTooLarge {
		t.Errorf("got %v for too large a blob", err)
	}
}

// damage flips one bit of the blob's file.
func damage(t testing.TB, s *Store, hash compute.Hash) {
	t.Helper()
	data, err := os.ReadFile(s.path(hash))
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 4
	if err := os.WriteFile(s.path(hash), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedBlobIsQuarantined(t *testing.T) {
	for name, spoil := range map[string]func(testing.TB, *Store, compute.Hash){
		"flipped bit": damage,
		"torn":        func(t testing.TB, s *Store, h compute.Hash) { mustTruncate(t, s.path(h), 3) },
		"empty":       func(t testing.TB, s *Store, h compute.Hash) { mustTruncate(t, s.path(h), 0) },
		"grown":       func(t testing.TB, s *Store, h compute.Hash) { mustTruncate(t, s.path(h), MaxBlob+2) },
	} {
		dir := t.TempDir()
		s := mustOpen(t, dir)
		hash := mustPut(t, s, "precious")
		spoil(t, s, hash)
		if _, err := s.Get(hash); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		}
		if _, err := s.Get(hash); compute.CodeOf(err) != compute.CodeNotFound {
			t.Errorf("%s: got %v afterwards, want not_found", name, err)
		}
		if found, _ := filepath.Glob(filepath.Join(dir, "quarantine", "*", Name(hash))); len(found) != 1 {
			t.Errorf("%s: got %v in quarantine", name, found)
		}
		mustPut(t, s, "precious")
		spoil(t, s, hash)
		mustPut(t, s, "precious") // A put repairs a damaged blob.
		if got, err := s.Get(hash); err != nil || string(got) != "precious" {
			t.Errorf("%s: put again: got %q, %v", name, got, err)
		}
	}
}

func mustTruncate(t testing.TB, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func TestCrashLeftoversAreRemoved(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	hash := mustPut(t, s, "kept")
	if err := os.WriteFile(filepath.Join(s.tmp(), "half"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir)
	if entries, err := os.ReadDir(s.tmp()); err != nil || len(entries) != 0 {
		t.Errorf("got %v, %v in tmp", entries, err)
	}
	if _, err := s.Get(hash); err != nil {
		t.Error(err)
	}
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small disk")
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	s := mustOpen(t, dir)
	defer s.Close()
	small := mustPut(t, s, "small")
	if _, err := s.Put(make([]byte, 1<<20)); compute.CodeOf(err) != compute.CodeNoSpace {
		t.Errorf("got %v, want no_space", err)
	}
	if entries, err := os.ReadDir(s.tmp()); err != nil || len(entries) != 0 {
		t.Errorf("got %v, %v left in tmp", entries, err)
	}
	if _, err := s.Get(small); err != nil {
		t.Errorf("reads on a full disk: %v", err)
	}
	mustPut(t, s, "fits")
}

func TestSweep(t *testing.T) {
	now := time.Now()
	s, err := Open(t.TempDir(), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	used, old, again := mustPut(t, s, "used"), mustPut(t, s, "old"), mustPut(t, s, "again")
	live := func(h compute.Hash) bool { return h == used }
	stray := filepath.Join(filepath.Dir(s.path(used)), "README")
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Hour)
	fresh := mustPut(t, s, "new")
	mustPut(t, s, "again") // Another submit of the same bytes.
	if n, err := s.Sweep(live, time.Hour); err != nil || n != 1 {
		t.Errorf("removed %d, %v, want 1", n, err)
	}
	for hash, want := range map[compute.Hash]bool{used: true, old: false, again: true, fresh: true} {
		if s.Has(hash) != want {
			t.Errorf("%s: has %t, want %t", Name(hash), s.Has(hash), want)
		}
	}
	if _, err := os.Stat(stray); err != nil {
		t.Errorf("a file that is not a blob: %v", err)
	}
}

// TestDamagedBlobsAreBounded damages one blob after the other.
func TestDamagedBlobsAreBounded(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	s, err := Open(dir, func() time.Time {
		at = at.Add(time.Second)
		return at
	})
	if err != nil {
		t.Fatal(err)
	}
	replica := filepath.Join(dir, "quarantine", "20250101T000000.000Z", "raft")
	if err := os.MkdirAll(replica, 0o700); err != nil {
		t.Fatal(err)
	}
	var newest compute.Hash
	for i := range damagedKept + 3 {
		newest = mustPut(t, s, fmt.Sprint("blob ", i))
		damage(t, s, newest)
		if _, err := s.Get(newest); !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "quarantine", "*", "*"))
	if err != nil || len(left) != damagedKept+1 || left[0] != replica || filepath.Base(left[damagedKept]) != Name(newest) {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestParseName(t *testing.T) {
	hash := compute.Hash(sha256.Sum256(nil))
	if got, err := ParseName(Name(hash)); err != nil || got != hash {
		t.Errorf("got %v, %v", got, err)
	}
	for _, name := range []string{
		"", "ab", "../../etc/passwd", strings.ToUpper(Name(hash)), Name(hash) + "00", Name(hash)[:62] + "zz",
	} {
		if _, err := ParseName(name); compute.CodeOf(err) != compute.CodeInvalid {
			t.Errorf("%q: got %v, want invalid", name, err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add(request{op: opPut, size: 3}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := decodeRequest(b)
		if err == nil && !bytes.Equal(q.encode(), b) {
			t.Errorf("%v came back as %v", b, q.encode())
		}
	})
}

func FuzzResult(f *testing.F) {
	f.Add(encodeTestResult([]byte("data"), nil))
	f.Add(encodeTestResult(nil, compute.Errorf(compute.CodeNoSpace, "full")))
	f.Fuzz(func(t *testing.T, b []byte) {
		data, err := readResult(bytes.NewReader(b))
		if err == nil && len(data) > len(b) {
			t.Errorf("%d bytes of %d", len(data), len(b))
		}
	})
}

// encodeTestResult encodes a whole result.
func encodeTestResult(data []byte, err error) []byte { return append(encodeHead(data, err), data...) }
