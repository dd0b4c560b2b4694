package prepare

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"berth/compute"
	"berth/fault"
	"berth/node/executor/docker"
	"berth/node/executor/program"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
	"berth/timerslack"
)

// spareTime is how long a supervisor waits for an attempt before it ends.
const spareTime = 5 * time.Minute

// spareMost is how many supervisors of a kind wait: as many short executions may end before the next ones
// start. One has about a MiB of memory of its own.
const spareMost = 16

// spare has the supervisors that wait for an attempt, which would start later by the start of
// their program. Those of containers also initialise the client of the engine.
type spare struct {
	command string // The argument by which the program is a supervisor of this kind.
	log     *slog.Logger

	mu       sync.Mutex
	waiting  []*waiting
	away     map[*supervise.Process]struct{} // Have an attempt.
	starting bool                            // One is being started.
	closed   bool
	group    sync.WaitGroup // Goroutines that await those that are away.
}

// waiting is a supervisor that waits until its limit.
type waiting struct {
	process *supervise.Process
	limit   *time.Timer
}

// take returns the supervisor that has waited for the shortest time, nil if none waits.
func (s *spare) take() *supervise.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.waiting) - 1
	if last < 0 {
		return nil
	}
	w := s.waiting[last]
	s.waiting = s.waiting[:last]
	w.limit.Stop()
	return w.process
}

// begin reports whether the caller is to start a supervisor, and then put it.
func (s *spare) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) > 0 || s.starting || s.closed {
		return false
	}
	s.starting = true
	return true
}

// put has a supervisor that the caller has begun to start wait for an attempt; nil if none could be
// started.
func (s *spare) put(process *supervise.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting = false
	if process != nil {
		s.add(process)
	}
}

// add has a supervisor wait. The caller holds mu.
func (s *spare) add(process *supervise.Process) {
	if s.closed || len(s.waiting) >= spareMost {
		process.Close()
		return
	}
	w := &waiting{process: process}
	w.limit = time.AfterFunc(spareTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if at := slices.Index(s.waiting, w); at >= 0 {
			s.waiting = slices.Delete(s.waiting, at, at+1)
			process.Close()
		}
	})
	s.waiting = append(s.waiting, w)
}

// await has a supervisor wait again when the attempt that it has got has ended, and calls ended if it
// ends instead.
func (s *spare) await(process *supervise.Process, ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		process.Close()
		return
	}
	s.away[process] = struct{}{}
	s.group.Go(func() {
		waits, err := process.Waits()
		if err != nil {
			s.log.Warn("supervisor not used again", "hint", "the next execution starts another one", "err", err)
		}
		s.mu.Lock()
		delete(s.away, process)
		if waits {
			s.add(process)
		}
		s.mu.Unlock()
		if !waits {
			process.Close()
			ended()
		}
	})
}

// close ends the supervisors that wait, and the others once their attempts have ended.
func (s *spare) close() {
	s.mu.Lock()
	s.closed = true
	for _, w := range s.waiting {
		w.limit.Stop()
		w.process.Close()
	}
	s.waiting = nil
	for process := range s.away {
		process.Close()
	}
	s.mu.Unlock()
	s.group.Wait()
}

// supervisors starts the supervisors of attempts.
type supervisors struct {
	root    string           // The directory of all attempts.
	program *program.Program // Those of sandboxes execute it; nil for this process's own.
	mounts  *os.File         // The mount namespace in which first processes start; nil for the machine's.
	log     *slog.Logger

	containers spare
	sandboxes  spare
}

func openSupervisors(root string, log *slog.Logger) *supervisors {
	own := openProgram(log)
	return &supervisors{
		root: root, program: own, mounts: openMounts(own, log), log: log,
		containers: spare{command: docker.Command, log: log, away: make(map[*supervise.Process]struct{})},
		sandboxes:  spare{command: supervise.Command, log: log, away: make(map[*supervise.Process]struct{})},
	}
}

// openProgram returns the program of supervisors, nil where this binary must do. Sandboxes then
// start more slowly.
func openProgram(log *slog.Logger) *program.Program {
	p, err := program.Open()
	switch {
	case errors.Is(err, program.ErrNotEmbedded):
		log.Info("supervisors execute the whole binary", "hint", "it starts more slowly; make build has their program")
	case errors.Is(err, fs.ErrPermission):
		log.Warn("supervisors execute the whole binary", "hint",
			"it starts more slowly; the machine must allow programs in memory (sysctl vm.memfd_noexec)", "err", err)
	case err != nil:
		log.Warn("supervisors execute the whole binary", "hint", "it starts more slowly", "err", err)
	}
	return p
}

// openMounts returns the mount namespace in which first processes start, nil where it cannot be made, or without the
// program of supervisors.
func openMounts(own *program.Program, log *slog.Logger) *os.File {
	if own == nil {
		return nil
	}
	mounts, err := sandbox.NewBareMounts()
	if err != nil {
		log.Warn("sandboxes start with copies of all mounts", "hint",
			"they start more slowly, the more mounts the machine has", "err", err)
		return nil
	}
	return mounts
}

// close ends the supervisors that wait.
func (s *supervisors) close() {
	s.containers.close()
	s.sandboxes.close()
	s.program.Close()
	if s.mounts != nil {
		s.mounts.Close()
	}
}

// spareFor returns the place of supervisors that attempts of an execution need.
func (s *supervisors) spareFor(x *compute.Execution) *spare {
	if x.Container != nil {
		return &s.containers
	}
	return &s.sandboxes
}

// take returns a supervisor that waits for its attempt, or starts one.
func (s *supervisors) take(from *spare) (*supervise.Process, error) {
	if process := from.take(); process != nil {
		return process, nil
	}
	return s.start(from.command)
}

// keep has a supervisor wait for the next attempt, if none does.
func (s *supervisors) keep(in *spare) {
	if !in.begin() {
		return
	}
	process, err := s.start(in.command)
	if err != nil {
		process = nil // The next attempt has the error.
	}
	in.put(process)
}

// start starts a supervisor without an attempt.
func (s *supervisors) start(command string) (*supervise.Process, error) {
	process, theirs, err := supervise.NewProcess()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		defer null.Close()
		err = s.execute(null, theirs, command, supervise.Waiting(s.root))
	}
	if err != nil {
		process.Close()
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	return process, nil
}

// execute starts the process of a supervisor, which is handed attempts at the end of a connection. It has its own
// session, so that it outlives this process.
func (s *supervisors) execute(null, hand *os.File, args ...string) error {
	// This binary needs the loader and the libraries of the machine, which are not among the bare mounts.
	files := supervise.Placeholders(null, hand, nil)
	// The supervisor is mostly idle. With one thread of Go code and one malloc
	// arena it starts faster and does not take cores from the attempt.
	attr := &os.ProcAttr{
		Dir: "/", Env: append(fault.Environment(), "GOMAXPROCS=1", "MALLOC_ARENA_MAX=1"),
		Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	}
	path := program.Own
	if args[0] == supervise.Command { // Those of containers have the client of the engine.
		path, attr.Files = s.program.For(supervise.Placeholders(null, hand, s.mounts))
	}
	args = append([]string{"berth"}, args...)
	process, err := spawn(path, args, attr)
	if err != nil && path != program.Own {
		s.log.Warn("supervisor executes the whole binary", "hint", "it starts more slowly", "err", err)
		attr.Files = files
		process, err = spawn(program.Own, args, attr)
	}
	if err != nil {
		return fmt.Errorf("spawn supervisor: %w", err)
	}
	go func() {
		// Only reaps the process. The outcome is in the journal.
		_, _ = process.Wait()
	}()
	return nil
}

// spawn starts a process with coarse timers, which it has from this thread: the monitor threads of
// a supervisor and of a first process would wake again and again while they start.
func spawn(path string, args []string, attr *os.ProcAttr) (*os.Process, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	timerslack.OfThread(timerslack.Supervisor)
	defer timerslack.OfThread(timerslack.Default)
	return os.StartProcess(path, args, attr)
}

// hand gives a supervisor that waits the attempt in dir, and returns the connection to it. Another
// takes the place of one that has ended meanwhile, but not of one with a sandbox, whose scratch space is used.
func (s *supervisors) hand(
	process *supervise.Process, of *spare, dir string, res *resources,
) (conn *supervise.Conn, err error) {
	fault.Point("executor.spawn.before")
	defer func() {
		if err != nil {
			process.Close()
		}
	}()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("hand over attempt: %w", err)
	}
	defer null.Close()
	stderr, err := os.OpenFile(filepath.Join(dir, supervise.ErrorFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("hand over attempt: %w", err)
	}
	defer stderr.Close()
	conn, err = process.Hand(dir, stderr, res.files(null))
	if err != nil && res.group == "" {
		another, e2 := s.start(of.command)
		if e2 != nil {
			return nil, errors.Join(err, e2)
		}
		process.Close()
		process = another
		conn, err = process.Hand(dir, stderr, res.files(null))
	}
	if err != nil {
		return nil, err
	}
	of.await(process, func() { s.keep(of) })
	fault.Point("executor.spawn.after")
	return conn, nil
}
