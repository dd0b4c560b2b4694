package nodetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// MustDisk mounts a small file system for the data of a node and returns where
// it is. A test that may not mount one is skipped.
func MustDisk(tb testing.TB, bytes int) string {
	tb.Helper()
	dir := tb.TempDir()
	if err := unix.Mount("berth-nodetest", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		tb.Skipf("mount a file system: %v", err)
	}
	tb.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// MustFill takes all free space of the file system that dir is on. free gives
// it back.
func MustFill(tb testing.TB, dir string) (free func()) {
	tb.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := f.Write(chunk); err != nil {
			chunk = chunk[:len(chunk)/2]
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			tb.Fatal(err)
		}
	}
}
