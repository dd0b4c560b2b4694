package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"

	"berth/timerslack"
)

// Main runs the first process of a sandbox and returns its exit code. It reports
// errors to the supervisor.
func Main() int {
	syscall.Umask(0o022)
	report := os.NewFile(fdReport, "report")
	done := make(chan error, 1)
	var status syscall.WaitStatus
	// The program inherits the restrictions of the thread that starts it. In init
	// functions the main goroutine is locked to the main thread, so a new
	// goroutine is on another one, and the rest of this process stays unrestricted.
	go func() {
		runtime.LockOSThread()
		var err error
		status, err = first(report)
		done <- err
	}()
	if err := <-done; err != nil {
		word := "error"
		if errors.Is(err, ErrProgram) {
			word = "refused"
		}
		fmt.Fprintf(report, "%s %s\n", word, strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	fmt.Fprintf(report, "exit %d\n", uint32(status))
	return 0
}

func first(report *os.File) (syscall.WaitStatus, error) {
	if err := closeOnExecFrom(fdSpec); err != nil {
		return 0, fmt.Errorf("close descriptors: %w", err)
	}
	data, err := io.ReadAll(os.NewFile(fdSpec, "spec"))
	if err != nil {
		return 0, fmt.Errorf("read spec: %w", err)
	}
	spec := new(Spec)
	if err := json.Unmarshal(data, spec); err != nil {
		return 0, fmt.Errorf("read spec: %w", err)
	}
	if err := buildRoot(spec); err != nil {
		return 0, err
	}
	if err := syscall.Sethostname([]byte(spec.Hostname)); err != nil {
		return 0, fmt.Errorf("set host name: %w", err)
	}
	if spec.OwnNetwork {
		if err := loopbackUp(); err != nil {
			return 0, fmt.Errorf("bring up loopback: %w", err)
		}
	}
	pid, err := start(spec, report)
	if err != nil {
		return 0, err
	}
	fmt.Fprintln(report, "started")
	return reap(pid)
}

// start starts the program once the supervisor permits it, and an early one before.
func start(spec *Spec, report *os.File) (pid int, err error) {
	var early *earlyProgram
	if spec.Early != nil {
		if early, err = startEarly(spec); err != nil {
			return 0, err
		}
	}
	fmt.Fprintln(report, "ready")
	pipe := os.NewFile(fdStart, "start")
	if err := awaitStart(pipe); err != nil {
		return 0, err
	}
	// The limits of the program are set by now, and its time counts.
	if early != nil {
		return early.pid, early.begin(pipe)
	}
	if err := unpackWork(os.NewFile(fdWork, "work"), WorkDir); err != nil {
		return 0, refusal(err)
	}
	return execute(spec, spec.Argv, spec.Env, nil)
}

// awaitStart waits for the supervisor's permission to start the program. It fails when
// the supervisor ends.
func awaitStart(pipe *os.File) error {
	var signal [1]byte
	if _, err := io.ReadFull(pipe, signal[:]); err != nil {
		return fmt.Errorf("wait for supervisor: %w", err)
	}
	return nil
}

// reap waits for the program, and reaps orphaned processes meanwhile.
func reap(program int) (syscall.WaitStatus, error) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for program: %w", err)
		case pid == program:
			return status, nil
		}
	}
}

// execute restricts this thread as the program must be, and starts the program
// from it, with input as EarlyInput unless that is nil. The thread must not be used
// for anything else afterwards.
//
// The thread keeps its user. The kernel checks signals, resource limits and
// scheduling per thread, so a thread with the program's user would let the
// program end this process. Only the child takes that user, after the fork, and
// loses all capabilities with it.
func execute(spec *Spec, argv, env []string, input *os.File) (int, error) {
	// The cgroup of this process becomes the root that the program sees.
	if err := unshare(cloneNewCgroup); err != nil {
		return 0, fmt.Errorf("unshare cgroup namespace: %w", err)
	}
	if err := limit(spec); err != nil {
		return 0, err
	}
	// This process may have coarse timers from its parent, which the program does not get.
	timerslack.OfThread(timerslack.Default)
	if err := prctl(prSetNoNewPrivs, 1); err != nil {
		return 0, fmt.Errorf("set no_new_privs: %w", err)
	}
	for c := uintptr(0); c <= lastCapability; c++ {
		if err := prctl(prCapBsetDrop, c); err != nil && !errors.Is(err, syscall.EINVAL) {
			return 0, fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	ruleset, err := landlock(spec)
	if err != nil {
		return 0, err
	}
	if ruleset >= 0 {
		if err := landlockRestrict(ruleset); err != nil {
			return 0, fmt.Errorf("restrict with landlock: %w", err)
		}
	}
	if len(spec.Seccomp) > 0 {
		listener, err := installFilter(spec.Seccomp)
		if err != nil {
			return 0, fmt.Errorf("install filter: %w", err)
		}
		server, err := newNetlinkServer(listener)
		if err != nil {
			return 0, err
		}
		go server.run()
	}
	files := []uintptr{0, 1, 2}
	if input != nil {
		files = append(files, input.Fd())
	}
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
		Dir:   WorkDir,
		Env:   env,
		Files: files,
		Sys: &syscall.SysProcAttr{
			Setsid:     true,
			Credential: &syscall.Credential{Uid: UserID, Gid: UserID}, // And no other groups.
		},
	})
	if err != nil {
		return 0, refusal(fmt.Errorf("start %s: %w", argv[0], err))
	}
	return pid, nil
}

// refusal marks the errors of which the program's own files and variables are the
// cause: they exceed what its sandbox or the kernel takes.
func refusal(err error) error {
	switch {
	case errors.Is(err, syscall.E2BIG):
		return fmt.Errorf("%w: the environment variables exceed what the kernel passes to a program: %w", ErrProgram, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ENOTDIR),
		errors.Is(err, syscall.EEXIST), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("%w: %w", ErrProgram, err)
	}
	return err
}

// coreLimit is a byte: too little for a core dump, and the one limit with which the
// kernel does not start the machine's program for core dumps either.
const coreLimit = 1

// LimitCore keeps this process and those that it starts from leaving core dumps, which have the
// secrets that pass through it. The limit is 0 where a lower one cannot be raised.
func LimitCore() error {
	err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{Cur: coreLimit, Max: coreLimit})
	if errors.Is(err, syscall.EPERM) {
		return syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	}
	return err
}

// limit sets the resource limits that the program inherits.
func limit(spec *Spec) error {
	for _, l := range []struct {
		resource int
		value    uint64
	}{
		{rlimitNproc, spec.MaxProcs},
		{syscall.RLIMIT_NOFILE, spec.MaxFiles},
	} {
		limit := syscall.Rlimit{Cur: l.value, Max: l.value}
		if err := syscall.Setrlimit(l.resource, &limit); err != nil {
			return fmt.Errorf("set resource limit: %w", err)
		}
	}
	if err := LimitCore(); err != nil {
		return fmt.Errorf("set resource limit: %w", err)
	}
	return nil
}

// landlock returns the rule set, or -1 where there is no Landlock.
func landlock(spec *Spec) (int, error) {
	rules := spec.Landlock
	if rules.Handled == 0 {
		return -1, nil
	}
	ruleset, err := landlockCreate(rules)
	if err != nil {
		return -1, fmt.Errorf("create landlock rules: %w", err)
	}
	allow := func(path string, access uint64) {
		if err == nil {
			if err = landlockAllow(ruleset, path, access); err != nil {
				err = fmt.Errorf("allow %s in landlock: %w", path, err)
			}
		}
	}
	allow("/", rules.Everywhere)
	for _, path := range scratchDirs() {
		allow(path, rules.Writable)
	}
	allow("/dev/pts", rules.Device)
	for _, bind := range spec.Binds {
		switch {
		case bind.Device:
			allow(bind.Target, rules.Device&rules.FileMask)
		case bind.Writable && bind.Dir:
			allow(bind.Target, rules.Writable)
		case bind.Writable:
			allow(bind.Target, rules.Writable&rules.FileMask)
		}
	}
	return ruleset, err
}
