package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// parent is the directory that holds the groups in each hierarchy.
const parent = "berth"

// initLeaf is the group for the processes of a v2 root that is not the machine's
// own, as in a container. A group that has processes cannot enable controllers
// for the groups below it.
const initLeaf = "berth-init"

// controllers returns the controllers that a Group needs in either version.
func controllers() []string { return []string{"cpu", "memory", "pids"} }

// Host is the machine's cgroup hierarchies.
type Host struct {
	V2   string            `json:"v2,omitempty"`   // Mount point of the unified hierarchy, if it has the controllers.
	Dirs map[string]string `json:"dirs,omitempty"` // Version 1: controller to parent directory.
}

// Detect returns the hierarchies that this process sees. The error names the
// controller that is missing.
func Detect() (*Host, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("detect cgroups: %w", err)
	}
	unified, mounts := parseMounts(data)
	if unified != "" {
		if h, err := detectV2(unified); h != nil || err != nil {
			return h, err
		}
	}
	h := &Host{Dirs: make(map[string]string)}
	for _, name := range [...]string{"cpu", "cpuacct", "memory", "pids", "freezer"} {
		dir, ok := mounts[name]
		if !ok {
			return nil, fmt.Errorf("detect cgroups: controller %q is in no mounted hierarchy", name)
		}
		h.Dirs[name] = path.Join(dir, parent)
	}
	for _, dir := range h.Dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("detect cgroups: %w", err)
		}
	}
	return h, limitAll(h.Dirs["pids"])
}

// limitAll leaves a quarter of the machine's process numbers to what is not in dir: the
// limits of all groups together may exceed what the machine has.
func limitAll(dir string) error {
	most, err := readInt("/proc/sys/kernel", "pid_max")
	if err == nil {
		err = write(dir, "pids.max", fmt.Sprint(most-most/4))
	}
	if err != nil {
		return fmt.Errorf("detect cgroups: %w", err)
	}
	return nil
}

// detectV2 returns nil when the unified hierarchy lacks a controller, as in the
// hybrid layout.
func detectV2(root string) (*Host, error) {
	data, err := os.ReadFile(path.Join(root, "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("detect cgroups: %w", err)
	}
	have := strings.Fields(string(data))
	for _, name := range controllers() {
		if !slices.Contains(have, name) {
			return nil, nil
		}
	}
	h := &Host{V2: root}
	if err := os.MkdirAll(path.Join(root, parent), 0o755); err != nil {
		return nil, fmt.Errorf("detect cgroups: %w", err)
	}
	if err := delegate(root); err != nil {
		return nil, fmt.Errorf("detect cgroups: %w", err)
	}
	if err := delegate(path.Join(root, parent)); err != nil {
		return nil, fmt.Errorf("detect cgroups: %w", err)
	}
	return h, limitAll(path.Join(root, parent))
}

// delegate enables the controllers for the groups below dir.
func delegate(dir string) error {
	enable := "+" + strings.Join(controllers(), " +")
	err := write(dir, "cgroup.subtree_control", enable)
	if err == nil {
		return nil
	}
	leaf := path.Join(dir, initLeaf)
	if e := os.MkdirAll(leaf, 0o755); e != nil {
		return errors.Join(err, e)
	}
	pids, e := pidsOf(dir)
	if e != nil {
		return errors.Join(err, e)
	}
	for _, pid := range pids {
		// Kernel threads and processes that ended meanwhile cannot be moved. If
		// that matters, the write below fails.
		_ = write(leaf, "cgroup.procs", fmt.Sprint(pid))
	}
	return write(dir, "cgroup.subtree_control", enable)
}

// parseMounts returns the mount point of the unified hierarchy and those of
// the controllers of version 1.
func parseMounts(mountinfo []byte) (unified string, v1 map[string]string) {
	v1 = make(map[string]string)
	for line := range bytes.Lines(mountinfo) {
		before, after, _ := strings.Cut(string(line), " - ")
		fields, super := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(super) < 3 {
			continue
		}
		switch super[0] {
		case "cgroup2":
			unified = fields[4]
		case "cgroup":
			for _, name := range strings.Split(super[2], ",") {
				v1[name] = fields[4]
			}
		}
	}
	return unified, v1
}

// Version returns 1 or 2.
func (h *Host) Version() int {
	if h.V2 != "" {
		return 2
	}
	return 1
}

// LimitsSockets reports whether groups limit the buffers of their sockets.
func (h *Host) LimitsSockets() bool {
	if h.V2 != "" {
		return true
	}
	_, err := os.Stat(path.Join(h.Dirs["memory"], socketLimit))
	return err == nil
}

// Groups returns the names of all groups of all nodes of the machine.
func (h *Host) Groups() ([]string, error) {
	dir := path.Join(h.V2, parent)
	if h.V2 == "" {
		dir = h.Dirs["memory"]
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}
	var found []string
	for _, entry := range entries {
		if entry.IsDir() {
			found = append(found, entry.Name())
		}
	}
	return found, nil
}
