package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// helper is the environment variable that turns a test process into a helper. Its
// value names the helper's work.
const helper = "BERTH_TEST_HELPER"

const patience = time.Minute

func TestMain(m *testing.M) {
	switch os.Getenv(helper) {
	case "":
		os.Exit(m.Run())
	case "allocate":
		for held := [][]byte{}; ; {
			page := make([]byte, 1<<20)
			for i := range page {
				page[i] = 1
			}
			held = append(held, page)
		}
	case "spin":
		for start := time.Now(); time.Since(start) < time.Second; {
			continue
		}
	case "fork":
		started := 0
		for ; started < 64; started++ {
			if err := self("wait").Start(); err != nil {
				break
			}
		}
		fmt.Println(started)
	case "buffer":
		if err := fillSockets(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "wait":
		<-time.After(time.Hour)
	}
}

// self returns a command that runs this binary as the helper for the work.
func self(work string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{helper + "=" + work, "GOMAXPROCS=1"}
	return cmd
}

// newGroup returns a group that is removed when the test ends.
func newGroup(t *testing.T, limits Limits) *Group {
	t.Helper()
	host, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	g, err := host.Create(fmt.Sprintf("test.%d.%s", os.Getpid(), t.Name()), limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Remove(patience); err != nil {
			t.Error(err)
		}
	})
	return g
}

// start starts a helper in the group.
func start(t *testing.T, g *Group, cmd *exec.Cmd) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := g.ForkInside(func(cgroupFD int) error {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: cgroupFD >= 0, CgroupFD: cgroupFD}
		return cmd.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestMemoryLimit(t *testing.T) {
	g := newGroup(t, Limits{MemoryBytes: 64 << 20, Pids: 100})
	cmd := self("allocate")
	start(t, g, cmd)
	err := cmd.Wait()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Errorf("ended as %v, want killed", err)
	}
	if kills, err := g.OOMKills(); err != nil || kills < 1 {
		t.Errorf("%d kills for memory, %v, want one", kills, err)
	}
	if reached, err := g.LimitReached(); err != nil || !reached {
		t.Errorf("limit reached: %v, %v, want true", reached, err)
	}
	// The kernel also counts the page that exceeded the limit.
	peak, err := g.PeakMemory()
	if err != nil || peak < 32<<20 || peak > 65<<20 {
		t.Errorf("peak %d, %v, want about the limit", peak, err)
	}
}

func TestPidsLimit(t *testing.T) {
	g := newGroup(t, Limits{MemoryBytes: 512 << 20, Pids: 24})
	cmd := self("fork")
	var out strings.Builder
	cmd.Stdout = &out
	cmd.WaitDelay = patience
	start(t, g, cmd)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var started int
	if _, err := fmt.Sscan(out.String(), &started); err != nil || started == 0 || started >= 24 {
		t.Errorf("started %d processes, %v, want some and less than the limit of 24", started, err)
	}
	if err := g.Kill(patience); err != nil {
		t.Error(err)
	}
	if pids, err := pidsOf(g.dir("pids")); err != nil || len(pids) != 0 {
		t.Errorf("%d processes are left, %v", len(pids), err)
	}
}

// TestCPULimit checks that a process gets its quota once per period. The kernel
// chooses when periods begin, so a process may touch one more at each end of its
// time.
func TestCPULimit(t *testing.T) {
	const milli = 200
	g := newGroup(t, Limits{MemoryBytes: 512 << 20, Pids: 100})
	if err := g.LimitCPU(milli); err != nil {
		t.Fatal(err)
	}
	cmd := self("spin")
	begin := time.Now()
	start(t, g, cmd)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	elapsed := time.Since(begin)
	used, err := g.CPUTime()
	if err != nil || used == 0 {
		t.Fatalf("used %v, %v", used, err)
	}
	quota, period := cpuQuota(milli)
	most := 2*time.Duration(quota)*time.Microsecond + elapsed*time.Duration(quota)/time.Duration(period)
	if used > most {
		t.Errorf("used %v of a core in %v, want %v at most", used, elapsed, most)
	}
}

// TestStarterIsOutsideTheGroup checks that only the started process is in the group.
func TestStarterIsOutsideTheGroup(t *testing.T) {
	g := newGroup(t, Limits{MemoryBytes: 64 << 20, Pids: 100})
	now := time.Now()
	if g.Abandoned(now.Add(-time.Minute)) || !g.Abandoned(now.Add(time.Minute)) {
		t.Error("Abandoned ignores the age of an empty group")
	}
	cmd := self("wait")
	start(t, g, cmd)
	if g.Abandoned(now.Add(time.Minute)) {
		t.Error("a group with a process counts as abandoned")
	}
	pids, err := pidsOf(g.dir("pids"))
	if err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Errorf("the group has %v, %v, want %d alone", pids, err, cmd.Process.Pid)
	}
	if names, err := g.host.Groups(); err != nil || !slices.Contains(names, g.name) {
		t.Errorf("groups are %v, %v, want %s among them", names, err, g.name)
	}
	if err := g.Remove(patience); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // It was killed.
	if _, err := os.Stat(g.dir("memory")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the group is still there: %v", err)
	}
}

func TestCPUQuota(t *testing.T) {
	for _, test := range []struct{ milli, quota, period int64 }{
		{4000, 400_000, 100_000},
		{1000, 100_000, 100_000},
		{500, 500_000, 1_000_000},
		{60, 60_000, 1_000_000},
		{1, 1_000, 1_000_000},
		{0, 1_000, 1_000_000},
	} {
		quota, period := cpuQuota(test.milli)
		if quota != test.quota || period != test.period {
			t.Errorf("cpuQuota(%d) = %d/%d, want %d/%d", test.milli, quota, period, test.quota, test.period)
		}
	}
}

func TestParseMounts(t *testing.T) {
	const mountinfo = `24 1 254:1 / / rw,relatime - ext4 /dev/vda rw
30 24 0:26 / /sys/fs/cgroup ro - tmpfs none rw
31 30 0:27 / /sys/fs/cgroup/unified rw shared:5 - cgroup2 none rw,nsdelegate
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:6 - cgroup none rw,cpu,cpuacct
`
	unified, v1 := parseMounts([]byte(mountinfo))
	if unified != "/sys/fs/cgroup/unified" || v1["cpuacct"] != "/sys/fs/cgroup/cpu,cpuacct" || v1["memory"] != "" {
		t.Errorf("parsed %q and %v", unified, v1)
	}
}

// TestAllGroupsLeaveProcessNumbers checks that the groups together cannot take all process
// numbers of the machine.
func TestAllGroupsLeaveProcessNumbers(t *testing.T) {
	g := newGroup(t, Limits{MemoryBytes: 64 << 20, Pids: 10})
	most, err := readInt("/proc/sys/kernel", "pid_max")
	if err != nil {
		t.Fatal(err)
	}
	limit, err := readInt(path.Dir(g.dir("pids")), "pids.max")
	if err != nil || limit < most/2 || limit > most-most/5 {
		t.Errorf("all groups may have %d of %d processes, %v", limit, most, err)
	}
}
