package disk

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"berth/cluster/file"
	"berth/fault"
)

// Default size of the ballast: a share of the file system, up to a maximum.
const (
	ballastMax   = 256 << 20
	ballastShare = 20 // The divisor of the file system's size.
	ballastFile  = "ballast"
)

// NoSpace reports whether err means that a disk or a quota is full.
func NoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// Free returns the bytes of dir's file system that are free for this process,
// and its total size.
func Free(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, fmt.Errorf("get free space of %s: %w", dir, err)
	}
	size := st.Frsize
	if size == 0 {
		size = st.Bsize
	}
	return int64(st.Bavail) * size, int64(st.Blocks) * size, nil
}

// Margin returns how many bytes of a file system of a size other files than the node's own
// leave free, for its state may be there: twice the ballast, below which it is full.
func Margin(total int64) int64 { return 2 * min(total/ballastShare, ballastMax) }

// Ballast is a file that reserves disk space, so that a snapshot still fits on
// a full disk: without a snapshot no entry can be removed. It is safe for
// concurrent use.
type Ballast struct {
	path string
	size int64

	mu   sync.Mutex
	held bool
}

// OpenBallast opens the ballast in dir. With a size of 0 it is a twentieth of
// the file system, at most 256 MiB; with a negative one there is none.
func OpenBallast(dir string, size int64) (*Ballast, error) {
	if size == 0 {
		_, total, err := Free(dir)
		if err != nil {
			return nil, err
		}
		size = min(total/ballastShare, ballastMax)
	}
	if fault.Planted(fault.NoBallast) {
		size = 0
	}
	b := &Ballast{path: filepath.Join(dir, ballastFile), size: max(size, 0)}
	var st unix.Stat_t
	err := unix.Stat(b.path, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return b, nil
	case err != nil:
		return nil, fmt.Errorf("open ballast: %w", err)
	case b.size > 0 && st.Size == b.size && st.Blocks*512 >= b.size:
		b.held = true
		return b, nil
	}
	if err := os.Remove(b.path); err != nil { // It has another size, or is incomplete.
		return nil, fmt.Errorf("open ballast: %w", err)
	}
	return b, nil
}

// Size returns the size of the ballast in bytes when it is held.
func (b *Ballast) Size() int64 { return b.size }

// Held reports whether the file exists.
func (b *Ballast) Held() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// Make allocates the file, unless it is held.
func (b *Ballast) Make() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held || b.size == 0 {
		return nil
	}
	f, err := os.OpenFile(b.path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, fileMode)
	if err == nil {
		err = errors.Join(fault.Error("disk.ballast.make"), allocate(f, b.size), f.Close())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make ballast: %w", err), os.Remove(b.path))
	}
	b.held = true
	return file.SyncDir(filepath.Dir(b.path))
}

// Drop removes the file and reports whether it existed.
func (b *Ballast) Drop() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.held || os.Remove(b.path) != nil {
		return false
	}
	b.held = false
	return true
}

// allocate gives the file real blocks. If the file system does not support
// fallocate, it writes random data, which no file system can compress.
func allocate(f *os.File, size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		_, err = io.CopyN(f, rand.NewChaCha8([32]byte{}), size)
	}
	if err != nil {
		return err
	}
	return f.Sync()
}
