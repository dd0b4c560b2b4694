// Package usage measures the processor time and the memory of processes.
package usage

import (
	"fmt"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Process is the resource use of a process so far. Memory is in bytes.
type Process struct {
	CPU      time.Duration // Time of all its threads, in steps of 10 ms.
	Resident uint64
	Own      uint64 // The part of Resident that is not pages of files.
	Peak     uint64 // The maximum of Resident.
}

// Read returns the resource use of a living process.
func Read(pid int) (Process, error) {
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

// Family returns the processor time of processes and of their descendants. Those that nobody has waited for
// when they ended are missing.
func Family(pids ...int) (time.Duration, error) {
	processes, err := procfs.AllProcs()
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	children, own := make(map[int][]int), make(map[int]time.Duration)
	const tick = time.Second / 100 // The unit of the kernel's counters.
	for _, p := range processes {
		stat, err := p.Stat()
		if err != nil {
			continue // It has ended.
		}
		children[stat.PPID] = append(children[stat.PPID], stat.PID)
		own[stat.PID] = tick * time.Duration(int(stat.UTime+stat.STime)+stat.CUTime+stat.CSTime)
	}
	var sum time.Duration
	for len(pids) > 0 {
		last := pids[len(pids)-1]
		pids = append(pids[:len(pids)-1:len(pids)-1], children[last]...)
		sum += own[last]
	}
	return sum, nil
}
