package world

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// memoryRoot is the parent of the cgroups that limit memory.
const memoryRoot = "/sys/fs/cgroup/memory"

// LimitMemory limits the memory of the node's running process: the kernel kills
// it when it needs more. The limit does not cover the executions, and ends with
// the process.
func (n *Node) LimitMemory(bytes int64) error {
	p := n.current()
	if p == nil {
		return nil
	}
	dir := filepath.Join(memoryRoot, n.netns)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make cgroup: %w", err)
	}
	for _, set := range [][2]string{
		{"memory.limit_in_bytes", strconv.FormatInt(bytes, 10)}, {"cgroup.procs", strconv.Itoa(p.pid)},
	} {
		if err := os.WriteFile(filepath.Join(dir, set[0]), []byte(set[1]), 0); err != nil {
			return fmt.Errorf("limit memory: %w", err)
		}
	}
	return nil
}

// removeGroups removes the cgroups of a slot. Their processes must have ended.
func removeGroups(prefix string) error {
	found, err := filepath.Glob(filepath.Join(memoryRoot, prefix+"-*"))
	errs := []error{err}
	for _, dir := range found {
		errs = append(errs, os.Remove(dir))
	}
	return errors.Join(errs...)
}
