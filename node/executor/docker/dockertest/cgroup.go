package dockertest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// CPUMilli returns the smallest quota of the cgroups of a process, in thousandths of a
// core; 0 for none.
func CPUMilli(t testing.TB, pid int) int64 {
	t.Helper()
	return least(t, pid, "cpu", func(dir string) int64 {
		quota, period := numberIn(dir, "cpu.cfs_quota_us"), numberIn(dir, "cpu.cfs_period_us")
		data, _ := os.ReadFile(filepath.Join(dir, "cpu.max")) // The root has none.
		if both := strings.Fields(string(data)); len(both) == 2 {
			quota, period = number(both[0]), number(both[1])
		}
		return quota * 1000 / max(period, 1)
	})
}

// Pids returns the smallest limit of processes of the cgroups of a process; 0 for none.
func Pids(t testing.TB, pid int) int64 {
	t.Helper()
	return least(t, pid, "pids", func(dir string) int64 { return numberIn(dir, "pids.max") })
}

// least returns the smallest limit above 0 of the cgroups that a process is in.
func least(t testing.TB, pid int, controller string, limit func(dir string) int64) (found int64) {
	t.Helper()
	groups, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		root := filepath.Join("/sys/fs/cgroup", fields[1])
		if fields[1] != "" && !slices.Contains(strings.Split(fields[1], ","), controller) {
			continue
		}
		for dir := fields[2]; ; dir = filepath.Dir(dir) {
			if n := limit(filepath.Join(root, dir)); n > 0 && (found == 0 || n < found) {
				found = n
			}
			if dir == "/" || dir == "." {
				break
			}
		}
	}
	return found
}

// numberIn returns the number in a file of a cgroup; 0 for none.
func numberIn(dir, file string) int64 {
	data, _ := os.ReadFile(filepath.Join(dir, file)) // The root has none.
	return number(string(data))
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64) // "max" is none.
	return n
}
