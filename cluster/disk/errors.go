package disk

import (
	"errors"
	"fmt"

	bbolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// ErrCorrupt is returned when data on disk differs from what was written.
var ErrCorrupt = errors.New("the raft log on disk is corrupt")

// Damaged reports whether err means that a replica is unusable. A transient
// error is not damage, as when another process holds the file or too many files
// are open.
func Damaged(err error) bool {
	if !errors.Is(err, ErrCorrupt) || NoSpace(err) || errors.Is(err, bbolterrors.ErrTimeout) {
		return false
	}
	for _, passing := range []error{
		unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EACCES, unix.EPERM, unix.EROFS, unix.EINTR,
	} {
		if errors.Is(err, passing) {
			return false
		}
	}
	return true
}

// opening classifies an error of opening the file. A system error says nothing
// about the file, and neither does a lock held by another process. Any other
// error of bbolt is about its pages.
func opening(err error) error {
	if _, refused := errors.AsType[unix.Errno](err); refused || errors.Is(err, bbolterrors.ErrTimeout) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// failing returns a permanent error with advice for the operator, nil for any
// other. After an I/O error the kernel may have dropped the pages, so
// that the next sync succeeds without them; a file system that has become
// read-only stays so.
func failing(err error) error {
	switch {
	case errors.Is(err, unix.EIO):
		return fmt.Errorf("%w: check the kernel log for errors of the disk, and replace it if there are any", err)
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w: the kernel remounts a file system read-only after a disk error, see its log: "+
			"check the file system, remount it, and restart this node", err)
	}
	return nil
}
