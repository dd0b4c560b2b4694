package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"berth/fault"
	"berth/node/executor/cgroup"
	"berth/node/executor/sandbox"
)

// A supervisor that waits for its attempt can prepare a sandbox meanwhile: the cgroup, the
// namespaces with the network, the first process, and the root up to where the program must be
// known. It gets the part of the Spec that this takes, and the descriptors, when it is
// started. It serves the one attempt that it is handed, whose Spec has the same cgroup. Without
// an attempt it removes all of that.

const (
	preparedLine  = "prepared\n" // To the node, once there is the sandbox.
	prepareWithin = time.Minute  // More than the sandbox takes for it.
)

// prepared is a sandbox without a program.
type prepared struct {
	name  string // The cgroup.
	group *cgroup.Group
	box   *sandbox.Sandbox
	pumps *pumps
	disk  *os.File // Left open: to unmount takes time, and the end of the code would wait.
}

// prepareAhead prepares the sandbox that the node asks for in FDAhead. It returns nil if it
// asks for none.
func prepareAhead() (*prepared, error) {
	for fd := FDConn; fd < firstHanded+handedFiles; fd++ {
		syscall.CloseOnExec(fd) // The first process would keep them.
	}
	data, err := readAhead()
	if err != nil || len(data) == 0 {
		return nil, err
	}
	spec := new(Spec)
	if err := json.Unmarshal(data, spec); err != nil {
		return nil, fmt.Errorf("prepare sandbox: %w", err)
	}
	p, err := prepare(spec)
	if err != nil {
		return nil, err
	}
	if err := p.box.Built(); err != nil {
		p.discard()
		return nil, err
	}
	fault.Point("supervisor.prepared")
	if _, err := syscall.Write(FDConn, []byte(preparedLine)); err != nil {
		p.discard()
		return nil, fmt.Errorf("prepare sandbox: %w", err)
	}
	return p, nil
}

// readAhead reads FDAhead to its end. It leaves it open, so that its number stays taken.
func readAhead() (data []byte, err error) {
	buffer := make([]byte, pumpBytes)
	for {
		n, err := syscall.Read(FDAhead, buffer)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return nil, fmt.Errorf("prepare sandbox: %w", err)
		case n == 0:
			return data, nil
		default:
			data = append(data, buffer[:n]...)
		}
	}
}

// prepare makes the cgroup, and starts the first process of the sandbox in it with all limits
// that the spec has but the CPU quota, which must not slow down the setup.
func prepare(spec *Spec) (p *prepared, err error) {
	host, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	if spec.JoinNetwork {
		if _, _, errno := syscall.RawSyscall(sysSetns, FDNetwork, cloneNewNet, 0); errno != 0 {
			return nil, fmt.Errorf("join network: %w", errno)
		}
	}
	p = &prepared{name: spec.Group}
	if p.group, err = host.Create(spec.Group, spec.limits()); err != nil {
		return nil, err
	}
	var stdout, stderr *os.File
	if p.pumps, stdout, stderr, err = newPumps(); err != nil {
		p.discard()
		return nil, err
	}
	defer stdout.Close()
	defer stderr.Close()
	if spec.Sandbox.ScratchDisk {
		p.disk = os.NewFile(FDScratch, "scratch")
	}
	err = p.group.ForkInside(func(cgroupFD int) (err error) {
		p.box, err = sandbox.Prepare(&spec.Sandbox, stdout, stderr, p.disk, cgroupFD)
		return err
	})
	if err != nil {
		p.discard()
		return nil, err
	}
	// Where this is not permitted, as in a container, the default remains.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.box.PID), []byte(codeOOMScore), 0)
	return p, nil
}

// take lets the attempt of a spec have the sandbox, with its limits.
func (p *prepared) take(spec *Spec) error {
	if p.name != spec.Group {
		return fmt.Errorf("take prepared sandbox: it is that of %s", p.name)
	}
	return p.group.Limit(spec.limits())
}

// discard removes a sandbox that gets no program.
func (p *prepared) discard() {
	if p == nil {
		return
	}
	if p.box != nil {
		p.box.Discard()
	}
	if err := p.group.Remove(killTimeout); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
