package supervise

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"berth/node/executor/cgroup"
	"berth/node/executor/sandbox"
)

// Box is where the code of an attempt executes: a sandbox of this machine, or
// containers of an engine. The supervisor's loop calls it from one goroutine; Wait
// runs beside the others.
type Box interface {
	// Await returns once the code can be started.
	Await() error
	// Execute starts the code. It may take the extra time for the files of the code.
	// An error that wraps sandbox.ErrProgram is the code's own fault.
	Execute(extra time.Duration) error
	// Wait returns how the code ended. An error means that its end is not known.
	Wait() (sandbox.Exit, error)
	// Terminate asks the code to end.
	Terminate() error
	// Kill kills the processes that the supervisor's cgroup does not hold.
	Kill() error
	// Process returns the id of a process in the network namespace of the code, 0 if the code
	// has ended.
	Process() int
	// Close begins to release the box, of which nothing executes any more, and
	// returns how its first process ended.
	Close() syscall.WaitStatus
	// Release returns once the box is released. It is called last.
	Release()
}

// Opener makes the box of an attempt: what its code writes goes to stdout and stderr,
// which the box duplicates. The cgroup exists, with the limits of the spec.
type Opener func(spec *Spec, group *cgroup.Group, stdout, stderr *os.File) (Box, error)

// sandboxed is a sandbox of this machine.
type sandboxed struct {
	*sandbox.Sandbox

	group *cgroup.Group
}

// Process returns the id of the sandbox's first process.
func (b sandboxed) Process() int { return b.PID }

// Terminate sends SIGTERM to every process but the first, which is Berth's.
func (b sandboxed) Terminate() error { return b.group.Signal(syscall.SIGTERM, b.PID) }

// Kill does nothing: the cgroup holds every process.
func (b sandboxed) Kill() error { return nil }

// Release does nothing: Close has released the sandbox.
func (b sandboxed) Release() {}

// warmed is a sandbox that was made ahead. Its program waits.
type warmed struct {
	sandboxed

	spec *sandbox.Spec // That of the attempt.
}

// Await does nothing: the sandbox is ready.
func (warmed) Await() error { return nil }

// Execute starts the code.
func (b warmed) Execute(extra time.Duration) error { return b.ExecuteAs(b.spec, extra) }

// discard ends a box whose code was not started.
func discard(b Box) {
	switch box := b.(type) {
	case sandboxed:
		box.end()
	case warmed:
		box.end()
	}
	b.Close()
}

// end kills the first process, without which the sandbox ends.
func (b sandboxed) end() { _ = syscall.Kill(b.PID, syscall.SIGKILL) }

// openContainers makes the box of an attempt whose code executes in containers.
func (s *supervisor) openContainers(host *cgroup.Host, stdout, stderr *os.File) (err error) {
	if s.process.open == nil {
		return fmt.Errorf("this supervisor starts no containers")
	}
	if s.spec.Container.Slice != "" {
		s.group = host.Slice(s.spec.Container.Slice)
	} else if s.group, err = host.Create(s.spec.Group, s.spec.limits()); err != nil {
		return err
	}
	s.box, err = s.process.open(s.spec, s.group, stdout, stderr)
	return err
}

// limits returns the limits of the attempt's cgroup.
func (s *Spec) limits() cgroup.Limits {
	return cgroup.Limits{MemoryBytes: s.MemoryMiB << 20, Pids: s.Pids}
}
