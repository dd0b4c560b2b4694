package supervise

import (
	"errors"
	"fmt"
	"os"

	"berth/node/executor/cgroup"
	"berth/node/executor/sandbox"
)

// forker is the thread that starts the first processes of sandboxes. It enters cgroups, networks and mount
// namespaces for them, in which no other thread of the supervisor is ever. It lives as long as the supervisor does,
// because the kernel kills a first process when the thread that forked it exits.
type forker struct {
	calls  chan func(from *sandbox.Mounts)
	joined bool // It is in the network of a sandbox.
}

func newForker() (*forker, error) {
	f := &forker{calls: make(chan func(*sandbox.Mounts))}
	opened := make(chan error)
	sandbox.OnOwnThread(func() {
		from, err := sandbox.OpenMounts(FDMounts)
		opened <- err
		if err != nil {
			return
		}
		for call := range f.calls {
			call(from)
		}
	})
	return f, <-opened
}

// do calls a function on the thread.
func (f *forker) do(call func(from *sandbox.Mounts) error) error {
	done := make(chan error)
	f.calls <- func(from *sandbox.Mounts) { done <- call(from) }
	return <-done
}

// leaveNetwork returns the thread to the network of the machine.
func (f *forker) leaveNetwork(network int) error {
	if f == nil || !f.joined {
		return nil
	}
	err := f.do(func(*sandbox.Mounts) error { return sandbox.EnterNamespace(network, cloneNewNet) })
	if err != nil {
		return fmt.Errorf("return to the network of the machine: %w", err)
	}
	f.joined = false
	return nil
}

// makeSandbox makes the cgroup of a spec and starts the first process of its sandbox in it.
func (p *process) makeSandbox(
	spec *Spec, stdin, stdout, stderr *os.File,
) (group *cgroup.Group, box *sandbox.Sandbox, err error) {
	host, err := p.groups(spec)
	if err != nil {
		return nil, nil, err
	}
	if p.forks == nil {
		if p.forks, err = newForker(); err != nil {
			return nil, nil, err
		}
	}
	group, err = host.Create(spec.Group, spec.limits())
	if errors.Is(err, os.ErrNotExist) { // Somebody has removed the parent of all groups.
		if p.host, err = cgroup.Detect(); err == nil {
			group, err = p.host.Create(spec.Group, spec.limits())
		}
	}
	if err != nil {
		return nil, nil, err
	}
	disk := -1
	if spec.Sandbox.ScratchDisk {
		disk = FDScratch // Left open: to unmount takes time, and the end of the code would wait.
	}
	p.forks.joined = p.forks.joined || spec.JoinNetwork
	err = p.forks.do(func(from *sandbox.Mounts) error {
		if spec.JoinNetwork {
			if err := sandbox.EnterNamespace(FDNetwork, cloneNewNet); err != nil {
				return fmt.Errorf("join network: %w", err)
			}
		}
		return group.ForkInside(func(cgroupFD int) (err error) {
			box, err = sandbox.Start(&spec.Sandbox, stdin, stdout, stderr, disk, cgroupFD, from)
			return err
		})
	})
	if err != nil {
		return group, nil, err
	}
	// Where this is not permitted, as in a container, the default remains.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", box.PID), []byte(codeOOMScore), 0)
	return group, box, nil
}
