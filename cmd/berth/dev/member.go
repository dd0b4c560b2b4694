package dev

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// How long the processes of a cluster may take to exit before they are killed.
const (
	stopGrace   = 20 * time.Second
	holderGrace = 3 * stopGrace
	pollEvery   = 50 * time.Millisecond
)

// member is one process of a cluster. Its handle refers to the process itself,
// so that a signal never reaches another process with a reused id.
type member struct {
	pid    int
	verb   string // node or supervise.
	handle *os.Process
}

// members returns the processes of the cluster in dir that execute the verb.
func members(dir, verb string) ([]member, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []member
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		handle, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		args := commandLine(pid)
		if !belongs(args, dir) || args[1] != verb {
			release(handle)
			continue
		}
		found = append(found, member{pid: pid, verb: verb, handle: handle})
	}
	return found, nil
}

// commandLine returns the arguments of the process, none for a missing process
// or a zombie.
func commandLine(pid int) []string {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimSuffix(data, []byte{0})), "\x00")
}

// belongs reports whether a command line belongs to a process of the cluster in
// dir: a berth program with an argument that names a file below dir.
func belongs(args []string, dir string) bool {
	if len(args) < 3 {
		return false
	}
	return slices.ContainsFunc(args[2:], func(arg string) bool {
		return strings.HasPrefix(arg, dir+string(filepath.Separator))
	})
}

// release releases the handle of a process. A failure has no remedy.
func release(handle *os.Process) {
	_ = handle.Release()
}

// end sends SIGTERM to the processes, and SIGKILL to those that are left after
// the grace. The error names those that even SIGKILL did not end.
func end(ctx context.Context, all []member, grace time.Duration) error {
	for _, m := range all {
		m.handle.Signal(syscall.SIGTERM) //nolint:errcheck // It may have ended.
	}
	asked, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if gone(asked, all) {
		return nil
	}
	for _, m := range all {
		m.handle.Kill() //nolint:errcheck // It may have ended.
	}
	killed, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if gone(killed, all) {
		return nil
	}
	return fmt.Errorf("processes %v do not end", pids(all))
}

// gone waits until none of the processes is left. It returns false if ctx ends
// first.
func gone(ctx context.Context, all []member) bool {
	return poll(ctx, func() bool {
		return !slices.ContainsFunc(all, func(m member) bool { return alive(m.pid, m.verb) })
	})
}

// alive reports whether the process still executes the verb.
func alive(pid int, verb string) bool {
	args := commandLine(pid)
	return len(args) > 1 && args[1] == verb
}

func pids(all []member) []int {
	out := make([]int, len(all))
	for i, m := range all {
		out[i] = m.pid
	}
	return out
}

// poll calls done repeatedly until it returns true. poll returns false if ctx
// ends first.
func poll(ctx context.Context, done func() bool) bool {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
