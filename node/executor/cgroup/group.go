package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Limits bound a Group.
type Limits struct {
	MemoryBytes int64 // Includes swap.
	Pids        int64
}

const (
	cpuPeriod   = 100_000   // Microseconds; the kernel's default.
	sharePeriod = 1_000_000 // Microseconds, for less than a core; the kernel's maximum.
	minCPUQuota = 1_000     // Microseconds; the kernel's minimum.

	// socketLimit is the file that limits the buffers of sockets on version 1, of
	// UDP too. Newer kernels may lack it.
	socketLimit    = "memory.kmem.tcp.limit_in_bytes"
	socketParts    = 16
	minSocketBytes = 16 << 20

	largestCharge = 2 << 20 // Bytes that the kernel charges at once at most: a huge page.

	// Intervals between checks of a group that is being killed or removed: each is twice
	// the one before. Most groups are empty within the first one.
	pollFirst = 200 * time.Microsecond
	pollLast  = 5 * time.Millisecond
)

// Group is one cgroup, in every hierarchy that it needs. Groups of containers have a
// group for each container below them.
type Group struct {
	host *Host
	name string // Below the groups' parent.
}

// Group returns the group with the name. It may not exist.
func (h *Host) Group(name string) *Group { return &Group{host: h, name: name} }

// Name returns the name by which Host.Group has the group.
func (g *Group) Name() string { return g.name }

// Slice returns the group of a systemd slice whose name has one dash, as in
// "berth-4f2a.slice". It may not exist: systemd makes and removes it.
func (h *Host) Slice(name string) *Group {
	root, _, _ := strings.Cut(name, "-")
	return &Group{host: h, name: path.Join("..", root+".slice", name)}
}

// Parent returns the path of the group from the root of each hierarchy, as engines take
// it for the groups of containers below it.
func (g *Group) Parent() string { return path.Join("/", parent, g.name) }

// Create makes the group with the limits.
func (h *Host) Create(name string, limits Limits) (*Group, error) {
	g := h.Group(name)
	for _, dir := range g.dirs() {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("create cgroup: %w", err)
		}
	}
	if err := g.limit(limits); err != nil {
		return nil, errors.Join(fmt.Errorf("create cgroup: %w", err), g.rmdir())
	}
	return g, nil
}

func (g *Group) limit(limits Limits) error {
	memory, pids := fmt.Sprint(limits.MemoryBytes), fmt.Sprint(limits.Pids)
	if err := write(g.dir("pids"), "pids.max", pids); err != nil {
		return err
	}
	if g.host.V2 != "" {
		err := write(g.dir("memory"), "memory.max", memory)
		return errors.Join(err, writeIfExists(g.dir("memory"), "memory.swap.max", "0"))
	}
	if err := write(g.dir("memory"), "memory.limit_in_bytes", memory); err != nil {
		return err
	}
	err := writeIfExists(g.dir("memory"), "memory.memsw.limit_in_bytes", memory)
	return errors.Join(err, writeIfExists(g.dir("memory"), socketLimit, fmt.Sprint(socketBytes(limits.MemoryBytes))))
}

// socketBytes returns how many bytes the buffers of the TCP and UDP sockets of a
// group on version 1 may have together: a part of its memory limit, beside it.
// Version 2 charges them to the limit itself, and so do both for other sockets.
func socketBytes(memory int64) int64 { return max(memory/socketParts, minSocketBytes) }

// LimitCPU limits the group to milli thousandths of a core.
func (g *Group) LimitCPU(milli int64) error {
	quota, period := cpuQuota(milli)
	var err error
	if g.host.V2 != "" {
		err = write(g.dir("cpu"), "cpu.max", fmt.Sprintf("%d %d", quota, period))
	} else {
		err = errors.Join(write(g.dir("cpu"), "cpu.cfs_period_us", fmt.Sprint(period)),
			write(g.dir("cpu"), "cpu.cfs_quota_us", fmt.Sprint(quota)))
	}
	if err != nil {
		return fmt.Errorf("limit cpu: %w", err)
	}
	return nil
}

// cpuQuota returns the quota and the period, in microseconds, for milli
// thousandths of a core. Less than a core gets a period of one second. With the
// default period of a tenth of a second, code runs for a few milliseconds at a
// time, always on cold caches, and needs up to 50% more CPU time (measured). A
// slow device would then be slower than it claims.
func cpuQuota(milli int64) (quota, period int64) {
	if milli >= 1000 {
		return milli * cpuPeriod / 1000, cpuPeriod
	}
	return max(milli*sharePeriod/1000, minCPUQuota), sharePeriod
}

// ForkInside calls fork, which must start a process from the calling thread. The
// process starts inside the group. On version 2, fork gets a descriptor of the
// group for clone3. On version 1 it gets -1: the calling thread, which must be
// locked, joins the group during the call and the groups' parent after it. Moving
// the process later would cost an RCU grace period in the kernel each time.
func (g *Group) ForkInside(fork func(cgroupFD int) error) error {
	if g.host.V2 != "" {
		dir, err := os.Open(g.dir(""))
		if err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
		defer dir.Close()
		return fork(int(dir.Fd()))
	}
	for _, dir := range g.dirs() {
		if err := write(dir, "tasks", "0"); err != nil {
			return errors.Join(fmt.Errorf("enter cgroup: %w", err), g.leave())
		}
	}
	return errors.Join(fork(-1), g.leave())
}

// leave moves the calling thread from the group to the groups' parent.
func (g *Group) leave() error {
	for _, dir := range g.dirs() {
		if err := write(path.Dir(dir), "tasks", "0"); err != nil {
			return fmt.Errorf("leave cgroup: %w", err)
		}
	}
	return nil
}

// PIDs returns the processes of the group.
func (g *Group) PIDs() ([]int, error) {
	pids, err := g.pids()
	if err != nil {
		return nil, fmt.Errorf("list processes of cgroup: %w", err)
	}
	return pids, nil
}

// Signal sends the signal to every process of the group but one.
func (g *Group) Signal(signal syscall.Signal, except int) error {
	pids, err := g.pids()
	if err != nil {
		return fmt.Errorf("signal cgroup: %w", err)
	}
	for _, pid := range pids {
		// The process may have ended since it was listed.
		if pid != except {
			_ = syscall.Kill(pid, signal)
		}
	}
	return nil
}

// Kill kills every process of the group, including those that it forks
// meanwhile. It waits until none is left or the time is over.
func (g *Group) Kill(within time.Duration) error {
	wait := pollFirst
	tick := time.NewTicker(wait)
	defer tick.Stop()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		pids, err := g.killOnce()
		if err != nil {
			return fmt.Errorf("kill cgroup: %w", err)
		}
		if len(pids) == 0 {
			return nil
		}
		select {
		case <-tick.C:
			wait = min(2*wait, pollLast)
			tick.Reset(wait)
		case <-deadline.C:
			return fmt.Errorf("kill cgroup: %d processes did not end in %v", len(pids), within)
		}
	}
}

// killOnce kills the processes of the group once and returns those that it found.
func (g *Group) killOnce() ([]int, error) {
	pids, err := g.pids()
	if err != nil || len(pids) == 0 {
		return nil, err
	}
	if g.host.V2 != "" && write(g.dir("pids"), "cgroup.kill", "1") == nil {
		return pids, nil
	}
	if g.host.V2 == "" {
		// Frozen processes cannot fork away from the signals.
		_ = write(g.dir("freezer"), "freezer.state", "FROZEN")
		defer func() { _ = write(g.dir("freezer"), "freezer.state", "THAWED") }()
	}
	return pids, g.Signal(syscall.SIGKILL, 0)
}

// Abandoned reports whether the group has no processes and was made before the
// given time. The creator of a younger group may be about to start one in it.
func (g *Group) Abandoned(before time.Time) bool {
	info, err := os.Stat(g.dir("pids"))
	if err != nil || !info.ModTime().Before(before) {
		return false
	}
	pids, err := g.pids()
	return err == nil && len(pids) == 0
}

// Remove kills the processes that are left in the group and removes it. It
// succeeds when the group does not exist.
func (g *Group) Remove(within time.Duration) error {
	if err := g.Kill(within); err != nil {
		return err
	}
	wait := pollFirst
	tick := time.NewTicker(wait)
	defer tick.Stop()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		// A group stays busy for a moment after its last process ended.
		err := g.rmdir()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
			wait = min(2*wait, pollLast)
			tick.Reset(wait)
		case <-deadline.C:
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
}

func (g *Group) rmdir() error {
	var errs error
	for _, dir := range g.dirs() {
		for _, inner := range childrenOf(dir) {
			_ = os.Remove(inner) // If inner stays, the removal of dir fails.
		}
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = errors.Join(errs, err)
		}
	}
	return errs
}

// RemoveLeft removes the directories of the group in hierarchies that a Group does not
// use. Engines make them for the containers of a group.
func (g *Group) RemoveLeft() {
	if g.host.V2 != "" {
		return
	}
	for _, hierarchy := range childrenOf(path.Dir(path.Dir(g.host.Dirs["memory"]))) {
		dir := path.Join(hierarchy, parent, g.name)
		for _, inner := range childrenOf(dir) {
			_ = os.Remove(inner) // A directory that is busy or gone may stay so.
		}
		_ = os.Remove(dir)
	}
}

// childrenOf returns the groups below a group's directory.
func childrenOf(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // It is gone.
	}
	var children []string
	for _, entry := range entries {
		if entry.IsDir() {
			children = append(children, path.Join(dir, entry.Name()))
		}
	}
	return children
}

// pids returns the processes of the group and of the groups below it.
func (g *Group) pids() ([]int, error) {
	all, err := pidsOf(g.dir("pids"))
	if err != nil {
		return nil, err
	}
	for _, dir := range childrenOf(g.dir("pids")) {
		more, err := pidsOf(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// CPUTime returns the CPU time that all processes of the group used.
func (g *Group) CPUTime() (time.Duration, error) {
	if g.host.V2 != "" {
		us, err := readKey(g.dir("cpu"), "cpu.stat", "usage_usec")
		return time.Duration(us) * time.Microsecond, err
	}
	ns, err := readInt(g.dir("cpuacct"), "cpuacct.usage")
	return time.Duration(ns), err
}

// Memory returns the memory use of the group in bytes.
func (g *Group) Memory() (int64, error) {
	if g.host.V2 == "" {
		return readInt(g.dir("memory"), "memory.usage_in_bytes")
	}
	return readInt(g.dir("memory"), "memory.current")
}

// PeakMemory returns the largest memory use of the group in bytes. Where the
// kernel does not record the peak (v2 before Linux 5.19), it is the current use.
func (g *Group) PeakMemory() (int64, error) {
	if g.host.V2 == "" {
		return readInt(g.dir("memory"), "memory.max_usage_in_bytes")
	}
	peak, err := readInt(g.dir("memory"), "memory.peak")
	if errors.Is(err, fs.ErrNotExist) {
		return g.Memory()
	}
	return peak, err
}

// OOMKills returns how many processes of the group the kernel killed to free
// memory: because the group reached its limit, or the machine had none left. On
// version 1 it leaves out those of groups below it.
func (g *Group) OOMKills() (int64, error) {
	if g.host.V2 != "" {
		return readKey(g.dir("memory"), "memory.events", "oom_kill")
	}
	return readKey(g.dir("memory"), "memory.oom_control", "oom_kill")
}

// LimitReached reports whether the group reached its memory limit. On version 1 it
// is also true when the group came within largestCharge of it, or when the kernel
// then reclaimed enough memory in the group.
func (g *Group) LimitReached() (bool, error) {
	if g.host.V2 != "" {
		hits, err := readKey(g.dir("memory"), "memory.events", "oom")
		return hits > 0, err
	}
	// The failure counters of version 1 stay 0 when the limit that includes swap,
	// which is the same, is reached first.
	limit, err := readInt(g.dir("memory"), "memory.limit_in_bytes")
	if err != nil {
		return false, err
	}
	peak, err := g.PeakMemory()
	return peak >= limit-largestCharge, err
}

// dir returns the group's directory in the controller's hierarchy.
func (g *Group) dir(controller string) string {
	if g.host.V2 != "" {
		return path.Join(g.host.V2, parent, g.name)
	}
	return path.Join(g.host.Dirs[controller], g.name)
}

// dirs returns the group's directory for each controller. A hierarchy may carry
// more than one, so directories may repeat.
func (g *Group) dirs() []string {
	if g.host.V2 != "" {
		return []string{g.dir("")}
	}
	dirs := make([]string, 0, len(g.host.Dirs))
	for _, name := range [...]string{"cpu", "cpuacct", "memory", "pids", "freezer"} {
		dirs = append(dirs, g.dir(name))
	}
	return dirs
}

func pidsOf(dir string) ([]int, error) {
	data, err := os.ReadFile(path.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, field := range strings.Fields(string(data)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// write writes to a file of a cgroup. The kernel takes each write as one command.
func write(dir, file, text string) error {
	fd, err := os.OpenFile(path.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fd.WriteString(text)
	if e := fd.Close(); err == nil {
		err = e
	}
	return err
}

// writeIfExists is write for a file that some kernels lack.
func writeIfExists(dir, file, text string) error {
	err := write(dir, file, text)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func readInt(dir, file string) (int64, error) {
	data, err := os.ReadFile(path.Join(dir, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
}

// readKey returns the number after key in a file of "key number" lines, or 0
// when the key is absent.
func readKey(dir, file, key string) (int64, error) {
	data, err := os.ReadFile(path.Join(dir, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == key {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, nil
}
