package prepare

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"berth/compute"
	"berth/node/executor/mount"
	"berth/node/executor/sandbox"
	"berth/node/executor/scratch"
)

// Offers returns the largest scratch space on disk of a node, and what it offers to
// executions that ask for it, but for its Docker engine.
func Offers(cfg Config) (scratchMiB int64, offers []compute.Offer) {
	for _, m := range cfg.Mounts {
		offers = append(offers, compute.VolumeOffer(m.Name))
	}
	if mount.Available() {
		offers = append(offers, compute.MountOffer)
	}
	slices.Sort(offers)
	offers = slices.Compact(offers)
	if cfg.ScratchMemory {
		return 0, offers
	}
	if _, err := exec.LookPath(scratch.Program); err != nil {
		return 0, offers
	}
	dir := cfg.DataDir
	for _, err := os.Stat(dir); err != nil && dir != "/"; _, err = os.Stat(dir) {
		dir = filepath.Dir(dir) // It is made when the node starts for the first time.
	}
	free, err := scratch.FreeMiB(dir)
	if err != nil {
		return 0, offers // It is logged when the executor opens.
	}
	return free / scratchParts * (scratchParts - 1), offers
}

// scratchParts: one part of this many of the free disk space is nobody's scratch space.
const scratchParts = 10

// volumes are the directories of the machine that executions get.
type volumes struct {
	mounts  []Mount
	looking chan struct{} // Has room for one that looks at the volumes of all executions.
}

func openVolumes(mounts []Mount) *volumes {
	return &volumes{mounts: mounts, looking: make(chan struct{}, 1)}
}

// binds returns the bind mounts of the volumes that the execution asked for, and
// of those that every execution has.
func (s *volumes) binds(x *compute.Execution) ([]sandbox.Bind, error) {
	var binds []sandbox.Bind
	asked := slices.Clone(x.Volumes)
	for _, m := range s.mounts {
		if m.Always && !slices.ContainsFunc(asked, func(v compute.Volume) bool { return v.Name == m.Name }) {
			asked = append(asked, compute.Volume{Name: m.Name})
		}
	}
	for _, v := range asked {
		i := slices.IndexFunc(s.mounts, func(m Mount) bool { return m.Name == v.Name })
		if i < 0 {
			return nil, compute.Errorf(compute.CodeUnavailable, "this node has no volume %q any more", v.Name)
		}
		m := &s.mounts[i]
		target := v.Path
		if target == "" {
			target = path.Join(compute.VolumesDir, v.Name)
		}
		if !path.IsAbs(target) || filepath.Clean(target) != target {
			return nil, compute.Errorf(compute.CodeInvalid, "volume %q: %q is not an absolute path", v.Name, target)
		}
		binds = append(binds, sandbox.Bind{Source: m.Path, Target: target, Writable: !m.ReadOnly && !v.ReadOnly})
	}
	slices.SortStableFunc(binds, func(a, b sandbox.Bind) int { return len(a.Target) - len(b.Target) }) // Parents first.
	return binds, nil
}

// lookWithin limits how long a start waits for the volumes to be looked at. That of a server that is
// gone may never answer.
const lookWithin = 200 * time.Millisecond

// describe describes what is mounted at the volumes that every execution has, and below them.
// It is another text once that is not the same, and "" without such volumes.
func (s *volumes) describe() (string, error) {
	always := slices.DeleteFunc(slices.Clone(s.mounts), func(m Mount) bool { return !m.Always })
	if len(always) == 0 {
		return "", nil
	}
	late := time.NewTimer(lookWithin)
	defer late.Stop()
	select {
	case s.looking <- struct{}{}:
	case <-late.C:
		return "", errNoAnswer
	}
	var seen string
	var err error
	done := make(chan struct{})
	go func() {
		defer func() { <-s.looking }()
		defer close(done)
		seen, err = describeMounts(always)
	}()
	select {
	case <-done:
		return seen, err
	case <-late.C:
		return "", errNoAnswer
	}
}

var errNoAnswer = errors.New("a volume does not answer")

// describeMounts describes what is mounted at volumes and below them.
func describeMounts(volumes []Mount) (string, error) {
	var seen strings.Builder
	for _, m := range volumes {
		where, err := filepath.EvalSymlinks(m.Path)
		if err != nil {
			return "", fmt.Errorf("volume %q: %w", m.Name, err)
		}
		info, err := os.Stat(where)
		if err != nil {
			return "", fmt.Errorf("volume %q: %w", m.Name, err)
		}
		table, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return "", fmt.Errorf("volume %q: %w", m.Name, err)
		}
		inode := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&seen, "%s %d %d\n%s", where, inode.Dev, inode.Ino, mountsBelow(table, where))
	}
	return seen.String(), nil
}

// mountsBelow returns the lines of a mountinfo for what is mounted at dir and below it.
func mountsBelow(mountinfo []byte, dir string) string {
	const place = 4 // Field of the mount point.
	escaped := strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(dir)
	var below strings.Builder
	for line := range strings.Lines(string(mountinfo)) {
		if fields := strings.Fields(line); len(fields) > place && within(fields[place], escaped) {
			below.WriteString(line)
		}
	}
	return below.String()
}

// within reports whether a path is dir or below it.
func within(name, dir string) bool {
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}
