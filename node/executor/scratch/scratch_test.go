package scratch_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/node/executor/scratch"
)

const sizeMiB = 32

func open(t *testing.T) (*scratch.Pool, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "scratch")
	pool, err := scratch.Open(t.Context(), dir, sizeMiB, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, dir
}

// at returns the path of a file in a file system that is mounted nowhere.
func at(root *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", root.Fd(), name)
}

func take(t *testing.T, pool *scratch.Pool, size int64) *os.File {
	t.Helper()
	root, err := pool.Take(t.Context(), size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// TestFileSystemsAreEmptyAndApart fills one file system and reads another.
func TestFileSystemsAreEmptyAndApart(t *testing.T) {
	pool, dir := open(t)
	for _, size := range []int64{0, 64} {
		root := take(t, pool, size)
		entries, err := os.ReadDir(at(root, "."))
		if err != nil || len(entries) != 0 {
			t.Errorf("a new file system has %v, %v", entries, err)
		}
		file, err := os.Create(at(root, "full"))
		if err != nil {
			t.Fatal(err)
		}
		written, err := io.Copy(file, io.LimitReader(zeros{}, 256<<20))
		file.Close()
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a file system of %d MiB took %d bytes: %v", size, written, err)
		}
		if want := max(size, sizeMiB) << 20; written > want || written < want*3/4 {
			t.Errorf("a file system of %d MiB took %d bytes", size, written)
		}
	}
	other := take(t, pool, 0)
	if err := os.WriteFile(at(other, "x"), []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 { // The template.
		t.Errorf("file systems in use have names: %v, %v", files, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestNothingIsLeft counts what is mounted and attached before and after.
func TestNothingIsLeft(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "scratch")
	pool, err := scratch.Open(t.Context(), dir, sizeMiB, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if n := attached(t, dir); n != 1 {
		t.Errorf("%d loop devices are attached, not the one that is ready", n)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("a detached mount has a place: %v", err)
	}
	root, err := pool.Take(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	root.Close()
	pool.Close()
	// The kernel detaches the device soon after its last file was closed.
	for attached(t, dir) > 0 {
		if t.Context().Err() != nil {
			t.Fatal("a loop device is still attached")
		}
		syscall.Sync()
	}
	if err := os.WriteFile(filepath.Join(dir, "1-1"), []byte("of a process that died"), 0o600); err != nil {
		t.Fatal(err)
	}
	if pool, err = scratch.Open(t.Context(), dir, sizeMiB, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	pool.Close()
	if _, err := os.Stat(filepath.Join(dir, "1-1")); !os.IsNotExist(err) {
		t.Errorf("what a dead process left is still there: %v", err)
	}
}

// attached returns how many loop devices have a file of the directory.
func attached(t *testing.T, dir string) (n int) {
	t.Helper()
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), dir) {
			n++
		}
	}
	return n
}

// TestSealed writes to a file system that is mounted read-only.
func TestSealed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "image")
	if err := scratch.Format(t.Context(), name, sizeMiB); err != nil {
		t.Fatal(err)
	}
	if err := scratch.Format(t.Context(), name, sizeMiB); !errors.Is(err, os.ErrExist) {
		t.Errorf("an existing file is formatted: %v", err)
	}
	for range 2 {
		root, err := scratch.Mount(name, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(root, "x"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
			t.Errorf("a sealed file system is written to: %v", err)
		}
		root.Close()
	}
	if _, err := scratch.Mount(t.TempDir()+"/none", true); err == nil {
		t.Error("a file that does not exist is mounted")
	}
}

func BenchmarkTake(b *testing.B) {
	pool, err := scratch.Open(b.Context(), filepath.Join(b.TempDir(), "scratch"), 50<<10, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	for b.Loop() {
		root, err := pool.Take(b.Context(), 0)
		if err != nil {
			b.Fatal(err)
		}
		root.Close()
	}
}
