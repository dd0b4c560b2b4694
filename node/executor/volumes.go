package executor

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"

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

// volumes returns the bind mounts of the volumes that the execution asked for, and
// of those that every execution has.
func (e *Executor) volumes(x *compute.Execution) ([]sandbox.Bind, error) {
	var binds []sandbox.Bind
	asked := slices.Clone(x.Volumes)
	for _, m := range e.cfg.Mounts {
		if m.Always && !slices.ContainsFunc(asked, func(v compute.Volume) bool { return v.Name == m.Name }) {
			asked = append(asked, compute.Volume{Name: m.Name})
		}
	}
	for _, v := range asked {
		i := slices.IndexFunc(e.cfg.Mounts, func(m Mount) bool { return m.Name == v.Name })
		if i < 0 {
			return nil, compute.Errorf(compute.CodeUnavailable, "this node has no volume %q any more", v.Name)
		}
		m := &e.cfg.Mounts[i]
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
