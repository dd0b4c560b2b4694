package prepare

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/compute"
	"berth/node/executor/cgroup"
	"berth/node/executor/live"
	"berth/node/executor/packages"
	"berth/node/executor/sandbox"
	"berth/node/executor/slot"
)

// Packages says how packages are installed.
type Packages struct {
	Index   packages.Index
	SizeMiB int64         // The largest installation; 0 for 20 GiB.
	KeepMiB int64         // Disk space of all installations that are kept; 0 for 100 GiB.
	Timeout time.Duration // Limit of one installation; 0 for 15 minutes.
}

const (
	packagesDirName = "packages"
	packagesAt      = "/packages" // In the sandbox.

	defaultPackagesMiB  = 20 << 10
	defaultKeptMiB      = 100 << 10
	defaultInstallLimit = 15 * time.Minute

	installerMemoryMiB = 2048 // At least.
	installerCPUMilli  = 1000 // At least: the quota of a simulated GPU is not for installers.
	installerLineBytes = 4 << 10
)

// installers numbers the installers of this process.
var installers atomic.Uint64 //nolint:gochecknoglobals // Names must differ in the whole process.

// installer installs packages, in sandboxes.
type installer struct {
	store *packages.Store // nil if packages cannot be installed. Then err has the reason.
	err   error

	dirs   *live.Dirs
	groups *live.Groups
	slots  *slot.Dir
	specs  *specs
	turns  *live.Turns
	now    func() time.Time
	log    *slog.Logger
}

// open opens the store of packages. A node without one says so when an execution asks for
// packages. noPython says why there is no interpreter.
func (s *installer) open(cfg *Config, pool *resourcePool, noPython error) {
	python := s.specs.python
	switch {
	case python == nil:
		s.err = noPython
		return
	case pool.disks == nil:
		s.err = compute.Errorf(compute.CodeUnavailable,
			"this node installs no packages: its scratch space is in memory")
		return
	}
	p := cfg.Packages
	s.store, s.err = packages.Open(packages.Config{
		Dir:         filepath.Join(cfg.DataDir, packagesDirName),
		Interpreter: packages.Interpreter{Executable: python.Executable, Version: python.Version},
		Index:       p.Index, SizeMiB: cmp.Or(p.SizeMiB, defaultPackagesMiB), KeepMiB: cmp.Or(p.KeepMiB, defaultKeptMiB),
		Timeout: cmp.Or(p.Timeout, defaultInstallLimit),
		Run:     s.run, Now: s.now, Logger: s.log,
	})
}

// installKept installs the packages of an environment. They stay until it is forgotten.
func (s *installer) installKept(ctx context.Context, x *environment) (sizeMiB int64, err error) {
	if s.store == nil {
		return 0, s.err
	}
	s.store.Pin(x.request())
	root, err := s.store.Mount(ctx, x.request(), func(string) {})
	if err != nil {
		s.store.Unpin(x.request())
		return 0, err
	}
	return s.store.SizeMiB(x.request()), root.Close()
}

// take returns a mount of the packages that the bundle asks for, or that its
// environment has, nil for none.
// While they are installed, the installer's lines are in the output of the attempt.
func (s *installer) take(
	ctx context.Context, a *live.Attempt, w compute.Work, bundle *compute.Bundle, env *environment,
) (*os.File, error) {
	request := packages.Request{Org: w.Execution.Org, Requirements: bundle.Requirements}
	if env != nil && bundle.Requirements == "" {
		request = env.request()
	}
	if request.Requirements == "" {
		return nil, nil
	}
	if s.store == nil {
		return nil, s.err
	}
	ctx, wait := s.turns.Wait(ctx, a, "packages")
	defer wait.End()
	root, err := s.store.Mount(ctx, request, wait.Report)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if compute.CodeOf(err) == compute.CodeInvalid {
		return nil, fmt.Errorf("%w: %w", ErrPackages, err)
	}
	return root, err
}

// ErrPackages means that the packages that the code asks for cannot be installed.
var ErrPackages = errors.New("packages not installed")

// run runs an installer in a sandbox.
func (s *installer) run(ctx context.Context, job packages.Job) (exitCode int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The kernel kills the first process of the sandbox when the thread that forked
		// it exits.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		exitCode, err = s.runOnThread(ctx, job)
	}()
	<-done
	if err != nil {
		return 0, fmt.Errorf("run installer: %w", err)
	}
	return exitCode, nil
}

// runOnThread runs an installer on this thread.
func (s *installer) runOnThread(ctx context.Context, job packages.Job) (int, error) {
	own, err := s.slots.Take()
	if err != nil {
		return 0, err
	}
	defer own.File.Close()
	group, err := s.groups.Host.Create(fmt.Sprintf("%sinstaller-%d-%d", s.groups.Prefix(), os.Getpid(), installers.Add(1)),
		cgroup.Limits{MemoryBytes: installerMemoryMiB << 20, Pids: maxPids})
	if err != nil {
		return 0, err
	}
	defer func() {
		if err := group.Remove(live.KillTimeout); err != nil {
			s.log.Warn("cgroup of an installer not removed", "err", err)
		}
	}()
	read, write, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer read.Close()
	box, err := s.start(job, own, group, write)
	write.Close()
	if err != nil {
		return 0, err
	}
	lines := make(chan struct{})
	go func() {
		defer close(lines)
		eachLine(read, job.Line)
	}()
	defer context.AfterFunc(ctx, func() { _ = group.Kill(live.KillTimeout) })()
	code, err := awaitInstaller(job, box, group)
	if box.Close(); ctx.Err() != nil {
		err = ctx.Err()
	}
	_ = read.SetReadDeadline(s.now().Add(live.KillTimeout)) // Its writers are gone.
	<-lines
	return code, err
}

// start starts the sandbox of an installer.
func (s *installer) start(
	job packages.Job, own *slot.Slot, group *cgroup.Group, out *os.File,
) (box *sandbox.Sandbox, err error) {
	empty, err := os.CreateTemp(s.dirs.Root, "installer-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(empty.Name())
	defer empty.Close()
	spec := &sandbox.Spec{
		UIDBase: own.UID(), Hostname: hostname, OwnNetwork: true, WorkSource: empty.Name(),
		ScratchMiB: 1, ScratchDisk: true, Argv: job.Argv, Env: job.Env, MaxProcs: maxPids, MaxFiles: maxFiles,
		Seccomp: s.specs.seccomp, Landlock: s.specs.landlock, Files: append(job.Files, ownFiles("")...),
		Binds: append(append([]sandbox.Bind{}, s.specs.baseBinds...), job.Binds...), Links: s.specs.baseLinks,
	}
	err = group.ForkInside(func(cgroupFD int) (err error) {
		box, err = startKeepingLimits(spec, out, job.Disk, cgroupFD)
		return err
	})
	return box, err
}

// startKeepingLimits starts a sandbox, which lowers the limit of core dumps of its
// process, and raises it again: this process is the node's.
func startKeepingLimits(spec *sandbox.Spec, out, disk *os.File, cgroupFD int) (*sandbox.Sandbox, error) {
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	box, err := sandbox.Start(spec, null, out, out, int(disk.Fd()), cgroupFD, nil)
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &core) // Without the right to raise it, core dumps are lost.
	return box, err
}

// awaitInstaller lets the installer start, and returns its exit code.
func awaitInstaller(job packages.Job, box *sandbox.Sandbox, group *cgroup.Group) (int, error) {
	end := func(err error) (int, error) {
		_ = syscall.Kill(box.PID, syscall.SIGKILL) // Without its first process, the sandbox ends.
		return 0, err
	}
	if err := box.Await(); err != nil {
		return end(err)
	}
	if err := errors.Join(job.Ready(box.PID), group.LimitCPU(installerCPUMilli)); err != nil {
		return end(err)
	}
	if err := box.Execute(0); err != nil {
		return end(err)
	}
	exit, err := box.Wait()
	if err != nil {
		if kills, _ := group.OOMKills(); kills > 0 {
			err = compute.Errorf(compute.CodeInvalid, "the installer exceeded %d MiB of memory", installerMemoryMiB)
		}
		return end(err)
	}
	if exit.Status.Signaled() {
		return 128 + int(exit.Status.Signal()), nil
	}
	return exit.Status.ExitStatus(), nil
}

// eachLine calls fn with each line that it reads, and with the parts of a long one.
func eachLine(from io.Reader, fn func(string)) {
	r := bufio.NewReaderSize(from, installerLineBytes)
	for {
		line, err := r.ReadSlice('\n')
		if text := strings.TrimRight(string(line), "\r\n"); text != "" {
			fn(strings.ToValidUTF8(text, "?"))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
