package node_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"berth/api/client"
	"berth/api/wire"
	"berth/node/nodetest"
)

// waitsWithSecret holds a secret until it ends.
const waitsWithSecret = `import os, signal
value = os.environ["TOKEN"]
print("ready", flush=True)
while True: signal.pause()
`

// TestProcessesLeaveNoCores crashes a node, supervisors and code while they hold a secret, with the
// limits and the settings under which the kernel writes core files: they leave none.
func TestProcessesLeaveNoCores(t *testing.T) {
	allowCores(t)
	dir := t.TempDir()
	t.Chdir(dir)
	c := nodetest.StartWith(t, 1, func(*nodetest.NodeConfig) {})
	account := c.MustAccount("acme")
	c.Hide(canary)
	api := nodetest.MustClient(t, account.Key, c.Nodes[0].URL)
	if err := api.SetVariable(t.Context(), "TOKEN", canary, true); err != nil {
		t.Fatal(err)
	}
	started, err := api.Submit(t.Context(), client.Start{Code: waitsWithSecret, ExecutionType: "cpu", Timeout: 60})
	if err != nil {
		t.Fatal(err)
	}
	mustReach(t, api, started.ExecutionID, "to have the secret", func(e wire.Execution) bool { return e.Stdout == "ready\n" })

	pid := c.Nodes[0].Pid()
	processes := append([]int{pid}, descendants(t, pid)...)
	if len(processes) < 3 {
		t.Fatalf("only the processes %v", processes)
	}
	for _, p := range processes {
		if limit := coreLimitOf(t, p); limit != "1" && limit != "0" {
			t.Errorf("process %d (%s) may write %s bytes of core dump", p, nameOf(p), limit)
		}
	}
	slices.Reverse(processes) // The node is the last: it ends the others.
	for _, p := range processes {
		if err := syscall.Kill(p, syscall.SIGABRT); err != nil && p == pid {
			t.Fatal(err)
		}
	}
	c.Nodes[0].Stop()
	for _, root := range []string{dir, c.Nodes[0].Config.DataDir} {
		if contains(t, root, canary) {
			t.Errorf("the secret is in a file below %s", root)
		}
	}
	if found, err := filepath.Glob(filepath.Join(dir, "core*")); err != nil || len(found) > 0 {
		t.Errorf("core files: %v, %v", found, err)
	}
}

// allowCores has the kernel write core files of what the test starts, and checks that it does.
func allowCores(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &before); err != nil {
		t.Fatal(err)
	}
	if before.Max < 1<<30 {
		t.Skipf("core files may have %d bytes at most", before.Max)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: before.Max, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_CORE, &before) })
	t.Setenv("GOTRACEBACK", "crash") // Else the runtime exits where it could end by the signal.
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil || bytes.ContainsAny(pattern, "|/") {
		t.Logf("core files go elsewhere (%s): the limits of processes are checked alone", bytes.TrimSpace(pattern))
		return
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	cmd.Dir = t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Signal(syscall.SIGABRT)
	_ = cmd.Wait() // By the signal.
	if found, err := filepath.Glob(filepath.Join(cmd.Dir, "core*")); err != nil || len(found) == 0 {
		t.Fatalf("a process that may leave a core file leaves none: %v", err)
	}
}

// descendants returns all processes below one.
func descendants(t *testing.T, pid int) (found []int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range threads {
		text, _ := os.ReadFile(name) // The thread may have ended.
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			found = append(append(found, child), descendants(t, child)...)
		}
	}
	return found
}

// coreLimitOf returns how many bytes of core dump a process may write.
func coreLimitOf(t *testing.T, pid int) string {
	t.Helper()
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return "0" // It has ended.
	}
	for line := range strings.Lines(string(limits)) {
		if rest, ok := strings.CutPrefix(line, "Max core file size"); ok {
			return strings.Fields(rest)[0]
		}
	}
	t.Fatalf("process %d has the limits %s", pid, limits)
	return ""
}

func nameOf(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // It may have ended.
	return strings.TrimSpace(string(name))
}
