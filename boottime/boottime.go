// Package boottime reads the clock that leases are counted on.
//
// It goes on while the machine sleeps, as the rest of the cluster does, and no
// one can set it; time.Now stands still in sleep, and its wall clock jumps. Its
// value means the same in every process of a machine until that boots again.
// It imports nothing that waits: supervisors load it first.
package boottime

import (
	"syscall"
	"time"
	"unsafe"
)

// Clock is CLOCK_BOOTTIME's number, which package syscall does not have; see
// clock_gettime(2).
const Clock = 7

// Now returns the time since the machine booted, sleep included.
func Now() time.Duration {
	var ts syscall.Timespec
	// It cannot fail: the clock exists since Linux 2.6.39.
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, Clock, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}
