// Package timerslack lets processes wake less often than the Go runtime has them wake.
//
// The runtime's monitor thread (sysmon in runtime/proc.go) sleeps 20 us at a time while
// goroutines run, to take the processor from those that wait in a system call. A process
// that is woken for each request and for each message of its peers pays for these sleeps each
// time, and on a virtual machine each sets a timer of the hypervisor. The kernel may end a
// thread's sleep later by the thread's timer slack, 50 us by default, which is what this
// package raises. The package imports little: supervisors load it first.
// See prctl(2), PR_SET_TIMERSLACK, and proc_pid_timerslack_ns(5).
package timerslack

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

const (
	// Node is the slack of a node's monitor thread. The monitor looks twice before it takes a
	// processor from a system call, or after 10 ms from a goroutine that computes.
	Node = 4 * time.Millisecond

	// Supervisor is the slack of a supervisor, whose one processor waits for the monitor
	// whenever a disk is slow.
	Supervisor = time.Millisecond

	// Default is the kernel's own, which the programs of users have.
	Default = 50 * time.Microsecond
)

// prSetTimerSlack is PR_SET_TIMERSLACK, which package syscall does not have.
const prSetTimerSlack = 29

// OfMonitor sets the slack of this process's monitor thread, and gives all others the default:
// a thread that the monitor has started since the last call has the monitor's. It fails without
// the capability CAP_SYS_NICE.
func OfMonitor(slack time.Duration) error {
	tids, err := threads()
	if err == nil {
		err = set(tids[0], slack)
	}
	if err != nil {
		return fmt.Errorf("set timer slack: %w", err)
	}
	for _, tid := range tids[1:] {
		_ = set(tid, Default) // It may have ended.
	}
	return nil
}

// threads returns the ids of the process's threads but the main one: first the monitor, which the
// runtime starts before any other. The kernel lists threads in the order of their starts.
func threads() (tids []string, err error) {
	tasks, err := os.Open("/proc/self/task")
	if err != nil {
		return nil, err
	}
	defer tasks.Close()
	tids, err = tasks.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	if len(tids) < 2 {
		return nil, errors.New("the process has one thread")
	}
	return tids[1:], nil
}

// set sets the slack of a thread. Its file stands below its own number, not below self.
func set(tid string, slack time.Duration) error {
	return os.WriteFile("/proc/"+tid+"/timerslack_ns", strconv.AppendInt(nil, slack.Nanoseconds(), 10), 0)
}

// OfThread sets the slack of the calling thread, which must be locked, and of the threads and
// processes that it starts later.
func OfThread(slack time.Duration) {
	// It cannot fail: every kernel since Linux 2.6.28 has it, and takes any number.
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, uintptr(slack.Nanoseconds()), 0)
}
