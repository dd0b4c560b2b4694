package outputs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"unsafe"
)

// Numbers and flags that package syscall lacks, which are the same on every
// architecture.
const (
	sysOpenat2 = 437
	oPath      = 0x200000

	resolveNoXDev       = 0x1
	resolveNoMagiclinks = 0x2
	resolveNoSymlinks   = 0x4
	resolveBeneath      = 0x8

	beneath = resolveBeneath | resolveNoSymlinks | resolveNoMagiclinks | resolveNoXDev
)

// openHow is struct open_how.
type openHow struct{ flags, mode, resolve uint64 }

// openAt opens a name in a directory. It follows no link and stays beneath.
func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	path, err := syscall.BytePtrFromString(name)
	if err != nil {
		return nil, &fs.PathError{Op: "openat2", Path: name, Err: err}
	}
	how := openHow{flags: uint64(flags | syscall.O_NOFOLLOW | syscall.O_CLOEXEC), resolve: beneath}
	for {
		fd, _, errno := syscall.Syscall6(sysOpenat2, dir.Fd(), uintptr(unsafe.Pointer(path)),
			uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
		switch {
		case errno == 0:
			return os.NewFile(fd, name), nil
		case !errors.Is(errno, syscall.EINTR) && !errors.Is(errno, syscall.EAGAIN):
			return nil, &fs.PathError{Op: "openat2", Path: name, Err: errno}
		}
	}
}

// kindAt returns the kind of a name in a directory, as in syscall.Stat_t.Mode. It
// follows no link, and opens nothing.
func kindAt(dir *os.File, name string) (uint32, error) {
	file, err := openAt(dir, name, oPath)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	var stat syscall.Stat_t
	if err := syscall.Fstat(int(file.Fd()), &stat); err != nil {
		return 0, &fs.PathError{Op: "fstat", Path: name, Err: err}
	}
	return stat.Mode & syscall.S_IFMT, nil
}
