// Package timerslack lets processes wake less often than the Go runtime has them wake.
//
// The runtime's monitor thread (sysmon in runtime/proc.go) sleeps 20 us at a time while
// goroutines run, to take the processor from those that wait in a system call. A process
// that is woken for each request and for each message of its peers pays for dozens of these
// sleeps each time, and on a virtual machine a sleep costs as much as a small request. The
// kernel may end a thread's sleep later by the thread's timer slack, 50 us by default, which
// is what this package raises. The package imports little: supervisors load it first.
// See prctl(2), PR_SET_TIMERSLACK, and proc_pid_timerslack_ns(5).
package timerslack

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

const (
	// Node is the slack of a node's monitor thread. The monitor takes a processor from a
	// goroutine that has computed for 10 ms, which may become 14 ms.
	Node = 4 * time.Millisecond

	// Supervisor is the slack of a supervisor, whose one processor waits for the monitor
	// whenever a disk is slow.
	Supervisor = time.Millisecond

	// Default is the kernel's own, which the programs of users have.
	Default = 50 * time.Microsecond
)

// prSetTimerSlack is PR_SET_TIMERSLACK, which package syscall does not have.
const prSetTimerSlack = 29

// OfMonitor sets the slack of this process's monitor thread. It fails without the capability
// CAP_SYS_NICE.
func OfMonitor(slack time.Duration) error {
	tid, err := monitor()
	if err != nil {
		return fmt.Errorf("set timer slack: %w", err)
	}
	value := strconv.FormatInt(slack.Nanoseconds(), 10)
	// Not below self: the file of a thread stands below its own number alone.
	if err := os.WriteFile("/proc/"+tid+"/timerslack_ns", []byte(value), 0); err != nil {
		return fmt.Errorf("set timer slack: %w", err)
	}
	return nil
}

// monitor returns the id of the monitor thread, which the runtime starts before any other. The
// kernel lists threads in the order of their starts.
func monitor() (tid string, err error) {
	tasks, err := os.Open("/proc/self/task")
	if err != nil {
		return "", err
	}
	defer tasks.Close()
	tids, err := tasks.Readdirnames(2) // The main thread comes first.
	if err != nil {
		return "", err
	}
	if len(tids) < 2 {
		return "", fmt.Errorf("the process has one thread")
	}
	return tids[1], nil
}

// OfThread sets the slack of the calling thread, which must be locked, and of the threads and
// processes that it starts later. With 0 the thread returns to what it had when it began.
func OfThread(slack time.Duration) {
	// It cannot fail: every kernel since Linux 2.6.28 has it, and takes any number.
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, uintptr(slack.Nanoseconds()), 0)
}
