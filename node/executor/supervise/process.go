package supervise

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"berth/boottime"
	"berth/fault"
	"berth/node/executor/cgroup"
	"berth/node/executor/journal"
	"berth/node/executor/sandbox"
)

// A supervisor supervises one attempt at a time. One whose attempt left nothing behind waits
// for another at FDHand, which saves the start of a process. It ends with the node that started it, once
// its attempt has ended.

const (
	waitsLine    = "waits\n" // Tells the node that the attempt has ended, and that the supervisor waits again.
	scoreFile    = "/proc/self/oom_score_adj"
	mostAttempts = 256       // A supervisor ends after so many, and with it whatever adds up in a process.
	reservedLast = FDStorage // The last number that attempts in sandboxes have.
)

// process is a supervisor's process, from one attempt to the next.
type process struct {
	argument string       // Memory of the command line.
	waiting  string       // A copy of the argument as the node gave it.
	open     Opener       // Makes the box of code that executes in containers; nil for sandboxes.
	host     *cgroup.Host // Nil before the first attempt needs it.
	network  int          // A descriptor of the machine's network namespace.
	forks    *forker      // Nil before the first sandbox.
	score    []byte       // The OOM score adjustment with which it was started; nil if unknown.
}

// Main supervises the attempt whose directory is the only argument, in a sandbox of this
// machine. With what Waiting returns the attempts come from the node, one after the other. It returns
// the exit code of the process.
func Main(args []string) int { return MainIn(args, nil) }

// MainIn is Main for attempts whose code executes in the box that open makes.
func MainIn(args []string, open Opener) int {
	runtime.LockOSThread() // The kernel kills Docker Compose when the thread that started it exits.
	syscall.Umask(0o077)
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: berth supervise DIR (started by the node only)")
		return 2
	}
	if err := sandbox.LimitCore(); err != nil { // It gets the secrets of its attempt.
		fmt.Fprintln(os.Stderr, "set limit of core dumps:", err)
		return 1
	}
	p := &process{argument: args[0], waiting: strings.Clone(args[0]), open: open}
	if err := p.serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// serve supervises the attempts that this process gets.
func (p *process) serve() error {
	if !waits(p.waiting) {
		_, err := p.run(p.waiting, nil)
		return err
	}
	var err error // The descriptor has a number that no attempt uses, as those are all reserved.
	if p.network, err = syscall.Open("/proc/self/ns/net", syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open network of the machine: %w", err)
	}
	p.score, _ = os.ReadFile(scoreFile)
	for reserved, n := handedFiles, 1; ; reserved, n = reservedLast+1-firstHanded, n+1 {
		dir, made := p.await(reserved)
		if dir == "" {
			return nil
		}
		show(p.argument, dir)
		again, err := p.run(dir, made)
		if err != nil || !again || n == mostAttempts {
			return err
		}
		if err := p.reset(); err != nil {
			_, _ = syscall.Write(FDHand, []byte(strings.ReplaceAll(err.Error(), "\n", " ")+"\n")) // The node logs it.
			return err
		}
	}
}

// await returns the directory of the attempt that the node hands over, and the sandbox that was made
// for it ahead, nil for none. The directory is "" if the node needs this supervisor no longer, or knows why
// it has failed.
func (p *process) await(reserved int) (dir string, made *warm) {
	dir, err := awaitAttempt(reserved)
	if err == nil && dir == "" {
		show(p.argument, strings.TrimSuffix(strings.TrimRight(p.waiting, "/"), waitingName)+warmName)
		made, dir, err = p.warmUp(reserved)
	}
	if err != nil {
		return "", nil
	}
	return dir, made
}

// groups returns the cgroups of the machine, which the node has usually found already.
func (p *process) groups(spec *Spec) (host *cgroup.Host, err error) {
	if p.host == nil {
		p.host = spec.Cgroups
	}
	if p.host == nil {
		p.host, err = cgroup.Detect()
	}
	return p.host, err
}

// run supervises the attempt in dir to its end. It reports whether the process can supervise
// another one.
func (p *process) run(dir string, made *warm) (again bool, err error) {
	if err := os.Chdir(dir); err != nil {
		return false, fmt.Errorf("supervise: %w", err)
	}
	spec, err := ReadSpec(".")
	if err != nil {
		return false, err
	}
	j, err := journal.Open(JournalFile)
	if err != nil {
		return false, err
	}
	if j.State().Starting {
		return false, errors.New("supervise: attempt was started before")
	}
	s := &supervisor{
		process: p, spec: spec, journal: j, warm: made, now: time.Now,
		lease:    boottime.Lease{Grace: spec.DisconnectGrace},
		commands: make(chan command, maxCommands), conns: make(map[*os.File]bool), over: make(chan struct{}),
	}
	defer s.close()
	if err := s.readVariables(); err != nil {
		return false, err
	}
	outcome := s.supervise()
	fault.Point("supervisor.ended.before")
	if err := j.Ended(outcome); err != nil {
		return false, err
	}
	fault.Point("supervisor.ended.after")
	s.broadcast("ended")
	if again = s.leftNothing(); again {
		s.hangUp()
	}
	return again, nil
}

// leftNothing reports whether the attempt used nothing of this process that another one would find:
// neither threads in its network, nor other processes, nor secrets that users keep.
func (s *supervisor) leftNothing() bool {
	return s.started != 0 && s.spec.Container == nil && s.spec.Serving == nil && s.spec.Storage == nil &&
		!s.spec.Variables
}

// reset returns the process to where it waits for an attempt, and tells the node. All that the attempt held
// by descriptors ends: its network, its scratch space and then its slot, which is nobody else's before.
func (p *process) reset() error {
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := p.forks.leaveNetwork(p.network); err != nil {
		return err
	}
	if p.score != nil {
		// The first process of the next sandbox starts with it.
		_ = os.WriteFile(scoreFile, p.score, 0)
	}
	null, err := syscall.Open(os.DevNull, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	defer syscall.Close(null)
	for _, fd := range []int{
		1, 2, FDNetwork, FDConn, FDMount, FDVariables, FDStorage, FDScratch, FDSlot,
	} {
		if err := syscall.Dup3(null, fd, 0); err != nil {
			return fmt.Errorf("close descriptor %d: %w", fd, err)
		}
	}
	fault.Point("supervisor.waits")
	_, err = syscall.Write(FDHand, []byte(waitsLine))
	show(p.argument, p.waiting)
	return err
}

// claim returns a file of an attempt's descriptor with a number of its own. The descriptor stays, so
// that its number does.
func claim(fd int, name string) (*os.File, error) {
	own, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, firstHanded+handedFiles)
	if errno != 0 {
		return nil, fmt.Errorf("open %s: %w", name, errno)
	}
	return os.NewFile(own, name), nil
}
