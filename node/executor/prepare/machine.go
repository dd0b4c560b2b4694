package prepare

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"berth/compute"
)

const (
	// The first Linux version with mount_setattr(2).
	minKernelMajor, minKernelMinor = 5, 12

	simulatedCoreMilli   = 500  // CPU quota of a simulated GPU of speed 1.
	simulatedMemoryParts = 8    // An execution on simulated GPUs gets at most this fraction (1/8) of the memory.
	defaultMemoryMiB     = 2048 // For a request that declares none.
	defaultVCPUMilli     = 1000
	minMemoryMiB         = 64 // An interpreter does not start with less.
	maxPids              = 512
	maxFiles             = 4096
)

// limits are the resource limits of one attempt.
type limits struct {
	memoryMiB int64
	cpuMilli  int64
	simulated bool
}

// limitsOf returns the limits of the work on a machine with that many CPUs and
// that much memory. With simulated GPUs, the declared vCPUs do not count: the CPU
// quota represents the GPUs' speed. The memory is limited to a fixed fraction.
func limitsOf(work compute.Work, cpus int, memoryMiB int64) limits {
	request := work.Execution.Request
	l := limits{memoryMiB: request.MemoryMiB, cpuMilli: request.VCPUMilli}
	if l.memoryMiB <= 0 {
		l.memoryMiB = defaultMemoryMiB
	}
	if l.cpuMilli <= 0 {
		l.cpuMilli = defaultVCPUMilli
	}
	if quota, ok := SimulatedCPU(work); ok {
		l.simulated, l.cpuMilli = true, quota
		l.memoryMiB = min(l.memoryMiB, memoryMiB/simulatedMemoryParts)
	}
	l.memoryMiB = max(min(l.memoryMiB, memoryMiB), minMemoryMiB)
	l.cpuMilli = max(min(l.cpuMilli, int64(cpus)*1000), 1)
	return l
}

// SimulatedCPU returns the CPU quota that represents the work's shares of
// simulated GPUs, and whether it has any.
func SimulatedCPU(work compute.Work) (milli int64, ok bool) {
	shares := make(map[compute.GPUID]int64)
	for _, share := range work.Attempt.GPUs {
		shares[share.GPU] = int64(share.Milli)
	}
	for _, gpu := range work.GPUs {
		if gpu.Simulated {
			ok = true
			milli += simulatedCoreMilli * int64(gpu.SpeedMilli) * shares[gpu.ID] / 1000 / compute.WholeGPU
		}
	}
	return milli, ok
}

// machine returns the number of CPUs and the memory of this machine.
func machine() (cpus int, memoryMiB int64, err error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, fmt.Errorf("read memory of the machine: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0, 0, fmt.Errorf("read memory of the machine: %w", err)
			}
			return runtime.NumCPU(), kib >> 10, nil
		}
	}
	return 0, 0, fmt.Errorf("read memory of the machine: no MemTotal")
}

// checkKernel returns an error if this process cannot start sandboxes.
func checkKernel() error {
	if os.Geteuid() != 0 {
		return compute.Errorf(compute.CodeForbidden, "a node must be started as root: it makes the sandboxes of executions")
	}
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return fmt.Errorf("read kernel release: %w", err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(data), "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("read kernel release %q: %w", strings.TrimSpace(string(data)), err)
	}
	if major < minKernelMajor || major == minKernelMajor && minor < minKernelMinor {
		return compute.Errorf(compute.CodeInvalid, "a node needs Linux %d.%d, this is %d.%d",
			minKernelMajor, minKernelMinor, major, minor)
	}
	return nil
}
