package supervise

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"berth/boottime"
)

// Flags of timerfd that package syscall lacks.
const (
	timerfdNonblock = 0x800
	timerfdCloexec  = 0x80000
	timerAbsolute   = 1
)

// timer fires once at a point of boottime. C receives one value per expiry.
type timer struct {
	C    chan struct{}
	file *os.File
}

func newTimer() (*timer, error) {
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, boottime.Clock, timerfdNonblock|timerfdCloexec, 0)
	if errno != 0 {
		return nil, fmt.Errorf("create timer: %w", errno)
	}
	t := &timer{C: make(chan struct{}, 1), file: os.NewFile(fd, "timer")}
	go t.watch()
	return t, nil
}

// watch sends expiries to C until the timer's file is closed.
func (t *timer) watch() {
	var count [8]byte
	for {
		if _, err := t.file.Read(count[:]); err != nil {
			return
		}
		select {
		case t.C <- struct{}{}:
		default:
		}
	}
}

// set moves the expiry to the given boottime. One in the past fires at once.
func (t *timer) set(at time.Duration) error {
	value := struct{ interval, value syscall.Timespec }{value: syscall.NsecToTimespec(int64(max(at, 1)))}
	fd, err := t.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("set timer: %w", err)
	}
	var errno syscall.Errno
	err = fd.Control(func(fd uintptr) {
		_, _, errno = syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, fd, timerAbsolute,
			uintptr(unsafe.Pointer(&value)), 0, 0, 0)
	})
	if err == nil && errno != 0 {
		err = errno
	}
	if err != nil {
		return fmt.Errorf("set timer: %w", err)
	}
	return nil
}

func (t *timer) close() { t.file.Close() }
