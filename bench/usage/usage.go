// Package usage says what processes have used of the machine.
package usage

import (
	"fmt"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Process is what a process has used so far. Memory is in bytes.
type Process struct {
	CPU      time.Duration // Of all its threads, in steps of 10 ms.
	Resident uint64
	Own      uint64 // Of Resident, what is no page of a file.
	Peak     uint64 // The most that Resident has been.
}

// Of returns what a living process has used.
func Of(pid int) (Process, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	stat, err := process.Stat()
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	status, err := process.NewStatus()
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return Process{
		CPU:      time.Duration(stat.CPUTime() * float64(time.Second)),
		Resident: status.VmRSS, Own: status.RssAnon, Peak: status.VmHWM,
	}, nil
}

// CPU returns the processor time of this process, of all its threads.
func CPU() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0 // It never fails for the process itself.
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
