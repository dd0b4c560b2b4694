// Package boottime reads the clock that leases are counted on.
//
// The clock advances while the machine sleeps and cannot be set. time.Now pauses
// during sleep, and its wall clock jumps. A reading is valid in every process of
// the machine until its next boot. The package imports little: supervisors load it
// first.
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
