package sandbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Command is the argument by which package early calls Main.
const Command = "sandbox-init"

// Descriptors that the first process finds open. The detached mounts begin at
// fdBinds; that of the scratch disk is the last one.
const (
	fdSpec   = 3
	fdStart  = 4
	fdReport = 5
	fdWork   = 6
	fdBinds  = 7
)

// setupTimeout is how long the first process may take for one step.
const setupTimeout = 30 * time.Second

// Sandbox is one started sandbox.
type Sandbox struct {
	PID       int // The first process. When it ends, the kernel kills the rest of the sandbox.
	spec      *Spec
	startPipe *os.File
	report    *os.File
	lines     *bufio.Reader
}

// Exit is how the program ended.
type Exit struct {
	Status syscall.WaitStatus
	OOM    bool // The kernel killed it to free memory, as the engine of a container says.
}

// Start starts the first process of the sandbox, which then builds the rest. The
// process starts in the v2 cgroup of cgroupFD, unless that is -1. It inherits the
// network namespace and the v1 cgroups of the calling thread. The program will
// read stdin and write to stdout and stderr. disk is the descriptor of a detached mount of an empty
// file system for Spec.ScratchDisk, else -1. The process gets copies of the mounts of the machine, or of those
// that the calling thread has opened.
func Start(
	spec *Spec, stdin, stdout, stderr *os.File, disk, cgroupFD int, from *Mounts,
) (*Sandbox, error) {
	mounts, err := openMounts(spec)
	if err != nil {
		return nil, err
	}
	defer closeAll(mounts)
	source := spec.WorkSource
	if spec.Early != nil {
		source = os.DevNull // It may not exist yet.
	}
	work, err := os.Open(source)
	if err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	defer work.Close()
	if disk >= 0 {
		if err := ownDisk(disk, spec.UIDBase); err != nil {
			return nil, fmt.Errorf("start sandbox: %w", err)
		}
	}
	specFile, err := specPipe(spec)
	if err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	defer specFile.Close()
	startRead, startWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	defer startRead.Close()
	reportRead, reportWrite, err := os.Pipe()
	if err != nil {
		startWrite.Close()
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	defer reportWrite.Close()
	files := []uintptr{stdin.Fd(), stdout.Fd(), stderr.Fd(), specFile.Fd(), startRead.Fd(), reportWrite.Fd(), work.Fd()}
	for _, mount := range mounts {
		files = append(files, uintptr(mount))
	}
	if disk >= 0 {
		files = append(files, uintptr(disk))
	}
	var pid int
	err = from.inside(func() (err error) {
		pid, err = forkFirst(spec, files, cgroupFD)
		return err
	})
	if err != nil {
		startWrite.Close()
		reportRead.Close()
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	lines := bufio.NewReader(reportRead)
	return &Sandbox{PID: pid, spec: spec, startPipe: startWrite, report: reportRead, lines: lines}, nil
}

// ownDisk makes the sandbox's root the owner of the empty file system.
func ownDisk(fd, uid int) error {
	if err := syscall.Fchownat(fd, ".", uid, uid, 0); err != nil {
		return fmt.Errorf("own scratch space: %w", err)
	}
	if err := syscall.Fchmodat(fd, ".", 0o700, 0); err != nil {
		return fmt.Errorf("own scratch space: %w", err)
	}
	return nil
}

// forkFirst starts this binary again as the first process of new namespaces. It
// is root inside them and has no privileges on the machine.
func forkFirst(spec *Spec, files []uintptr, cgroupFD int) (int, error) {
	flags := syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID |
		syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
	if spec.OwnNetwork {
		flags |= syscall.CLONE_NEWNET
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: spec.UIDBase, Size: UIDs}}
	if err := LimitCore(); err != nil { // The first process may not raise a limit of 0.
		return 0, fmt.Errorf("set resource limit: %w", err)
	}
	var pid int
	err := asUser(spec.UIDBase, func() (err error) {
		pid, err = syscall.ForkExec("/proc/self/exe", []string{"berth", Command}, &syscall.ProcAttr{
			Dir:   "/",
			Env:   []string{"GOMAXPROCS=1", "GOGC=off"}, // It allocates little and needs one thread.
			Files: files,
			Sys: &syscall.SysProcAttr{
				Cloneflags:                 uintptr(flags),
				UidMappings:                ids,
				GidMappings:                ids,
				GidMappingsEnableSetgroups: true,
				Credential:                 &syscall.Credential{Uid: 0, Gid: 0},
				Setsid:                     true,
				UseCgroupFD:                cgroupFD >= 0,
				CgroupFD:                   cgroupFD,
				Pdeathsig:                  syscall.SIGKILL,
			},
		})
		return err
	})
	return pid, err
}

// asUser calls fork while the calling thread, which must be locked, has the user as
// its effective one and keeps its capabilities. The kernel counts what the processes
// of a user namespace take (instances and watches of inotify, queued signals, message
// queues) also for the user that made the namespace. If that were root, one sandbox
// could take all that root may have, and no other process of the machine that
// belongs to root, and no other sandbox, would get any.
func asUser(user int, fork func() error) error {
	bits, err := prctlGet(prGetSecurebits)
	if err == nil {
		err = prctl(prSetSecurebits, bits|secbitNoSetuidFixup)
	}
	if err == nil {
		err = setEffectiveUser(user)
	}
	if err != nil {
		return fmt.Errorf("take the user of the sandbox: %w", err)
	}
	err = fork()
	if e := errors.Join(setEffectiveUser(0), prctl(prSetSecurebits, bits)); e != nil {
		return errors.Join(err, fmt.Errorf("return to root: %w", e))
	}
	return err
}

// openMounts returns a detached mount for each bind. It excludes submounts that
// appear later. Setuid bits in it have no effect, and neither have device files
// unless the bind is a device.
func openMounts(spec *Spec) ([]int, error) {
	mounts := make([]int, 0, len(spec.Binds))
	for i := range spec.Binds {
		bind := &spec.Binds[i]
		if bind.Mount != nil {
			fd, err := syscall.Dup(int(bind.Mount.Fd()))
			if err != nil {
				closeAll(mounts)
				return nil, fmt.Errorf("open mount of %s: %w", bind.Target, err)
			}
			syscall.CloseOnExec(fd)
			bind.Dir, mounts = true, append(mounts, fd)
			continue
		}
		attributes := uint64(mountAttrNosuid)
		if !bind.Writable && !bind.Device {
			attributes |= mountAttrRdonly
		}
		if !bind.Device {
			attributes |= mountAttrNodev
		}
		info, err := os.Stat(bind.Source)
		if err == nil {
			bind.Dir = info.IsDir()
			var fd int
			if fd, err = openTree(bind.Source, attributes); err == nil {
				mounts = append(mounts, fd)
				continue
			}
		}
		closeAll(mounts)
		return nil, fmt.Errorf("open mount of %s: %w", bind.Source, err)
	}
	return mounts, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		syscall.Close(fd)
	}
}

// specPipe returns a pipe from which the spec can be read.
func specPipe(spec *Spec) (*os.File, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// The reader starts later, and the caller must not wait for it.
	go func() {
		// If the reader died, its missing report shows it.
		_, _ = w.Write(data)
		w.Close()
	}()
	return r, nil
}

// Await returns when the first process is ready to start the program, or has started an
// early one.
func (s *Sandbox) Await() error {
	if err := s.report.SetReadDeadline(time.Now().Add(setupTimeout)); err != nil {
		return fmt.Errorf("build sandbox: %w", err)
	}
	_, err := s.expect("ready")
	return err
}

// ErrNoReport means that the sandbox ended, or took too long, without a report.
// After Execute it may nevertheless have started the program.
var ErrNoReport = errors.New("sandbox ended")

// ErrProgram means that the program's files or variables cannot be used. It would
// fail on every machine.
var ErrProgram = errors.New("not executable")

// Execute makes the first process start the program and returns when it has. The
// process may take the extra time to unpack the files. An early program gets its arguments and
// variables instead.
func (s *Sandbox) Execute(extra time.Duration) error { return s.ExecuteAs(s.spec, extra) }

// ExecuteAs is Execute with the files, and for an early program the arguments and variables, of a
// spec that came later.
func (s *Sandbox) ExecuteAs(spec *Spec, extra time.Duration) error {
	if err := s.report.SetReadDeadline(time.Now().Add(setupTimeout + extra)); err != nil {
		return fmt.Errorf("start program: %w", err)
	}
	if _, err := s.startPipe.Write([]byte{'.'}); err != nil {
		return fmt.Errorf("start program: %w", err)
	}
	if spec.Early != nil {
		work, err := os.Open(spec.WorkSource)
		if err != nil {
			return fmt.Errorf("start program: %w", err)
		}
		defer work.Close()
		// The first process reports its errors, and reads no further then. The end of the pipe tells it of others.
		go func() {
			if err := deliver(s.startPipe, spec, work); err != nil {
				s.startPipe.Close()
			}
		}()
	}
	_, err := s.expect("started")
	return err
}

// Wait returns how the program ended. An error means that the sandbox ended
// without a report: it was killed.
func (s *Sandbox) Wait() (Exit, error) {
	if err := s.report.SetReadDeadline(time.Time{}); err != nil {
		return Exit{}, fmt.Errorf("wait for sandbox: %w", err)
	}
	text, err := s.expect("exit")
	if err != nil {
		return Exit{}, err
	}
	status, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return Exit{}, fmt.Errorf("wait for sandbox: %w", err)
	}
	return Exit{Status: syscall.WaitStatus(status)}, nil
}

// Close reaps the first process, which must be ending, closes its pipes and returns
// how the process ended.
func (s *Sandbox) Close() syscall.WaitStatus {
	s.startPipe.Close()
	s.report.Close()
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(s.PID, &status, 0, nil)
		if err != syscall.EINTR {
			return status
		}
	}
}

// expect reads one line of the report, which must begin with word, and returns the
// rest of the line. The error is ErrNoReport when there is no line.
func (s *Sandbox) expect(word string) (string, error) {
	line, err := s.lines.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%w before %q: %w", ErrNoReport, word, err)
	}
	got, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if got == "refused" {
		return "", fmt.Errorf("%w: %s", ErrProgram, strings.TrimPrefix(rest, ErrProgram.Error()+": "))
	}
	if got != word {
		return "", fmt.Errorf("build sandbox: %s", rest)
	}
	return rest, nil
}
