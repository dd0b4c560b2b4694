package prepare

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"berth/compute"
	"berth/fault"
	"berth/node/executor/docker"
	"berth/node/executor/program"
	"berth/node/executor/supervise"
	"berth/timerslack"
)

// spareTime is how long a supervisor waits for an attempt before it ends.
const spareTime = 5 * time.Minute

// spare is at most one supervisor that waits for its attempt, which would start later by
// the start of its program. That of containers also initialises the client of the engine.
type spare struct {
	command string // The argument by which the program is a supervisor of this kind.

	mu       sync.Mutex
	conn     *supervise.Conn // Nil for none.
	limit    *time.Timer
	starting bool // One is being started.
	closed   bool
}

// take returns the supervisor that waits, nil if none does.
func (s *spare) take() *supervise.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn := s.conn
	if s.conn = nil; conn != nil {
		s.limit.Stop()
	}
	return conn
}

// begin reports whether the caller is to start a supervisor, and then put it.
func (s *spare) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil || s.starting || s.closed {
		return false
	}
	s.starting = true
	return true
}

// put has a supervisor wait for the next attempt; nil if none could be started.
func (s *spare) put(conn *supervise.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting = false
	switch {
	case conn == nil:
		return
	case s.closed:
		conn.Close()
		return
	}
	s.conn = conn
	s.limit = time.AfterFunc(spareTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.conn == conn {
			s.conn = nil
			conn.Close()
		}
	})
}

// close ends the supervisor that waits.
func (s *spare) close() {
	if conn := s.take(); conn != nil {
		conn.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// supervisors starts the supervisors of attempts.
type supervisors struct {
	root    string           // The directory of all attempts.
	program *program.Program // Those of sandboxes execute it; nil for this process's own.
	log     *slog.Logger

	containers spare
	sandboxes  spare
}

func openSupervisors(root string, log *slog.Logger) *supervisors {
	return &supervisors{
		root: root, program: openProgram(log), log: log,
		containers: spare{command: docker.Command}, sandboxes: spare{command: supervise.Command},
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

// close ends the supervisors that wait.
func (s *supervisors) close() {
	s.containers.close()
	s.sandboxes.close()
	s.program.Close()
}

// spareFor returns the place of supervisors that attempts of an execution need.
func (s *supervisors) spareFor(x *compute.Execution) *spare {
	if x.Container != nil {
		return &s.containers
	}
	return &s.sandboxes
}

// take returns a supervisor that waits for its attempt, or starts one.
func (s *supervisors) take(from *spare) (*supervise.Conn, error) {
	if conn := from.take(); conn != nil {
		return conn, nil
	}
	return s.start(from.command)
}

// keep has a supervisor wait for the next attempt, if none does.
func (s *supervisors) keep(in *spare) {
	if !in.begin() {
		return
	}
	conn, err := s.start(in.command)
	if err != nil {
		conn = nil // The next attempt has the error.
	}
	in.put(conn)
}

// start starts a supervisor without an attempt.
func (s *supervisors) start(command string) (*supervise.Conn, error) {
	conn, theirs, err := supervise.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		defer null.Close()
		err = s.execute(supervise.Placeholders(null, theirs), command, supervise.Waiting(s.root))
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	return conn, nil
}

// execute starts the process of a supervisor, whose first descriptors are files. It has its own
// session, so that it outlives this process.
func (s *supervisors) execute(files []*os.File, args ...string) error {
	// The supervisor is mostly idle. With one thread of Go code and one malloc
	// arena it starts faster and does not take cores from the attempt.
	attr := &os.ProcAttr{
		Dir: "/", Env: append(fault.Environment(), "GOMAXPROCS=1", "MALLOC_ARENA_MAX=1"),
		Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	}
	path := program.Own
	if args[0] == supervise.Command { // Those of containers have the client of the engine.
		path, attr.Files = s.program.For(files)
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

// hand gives a supervisor that waits the attempt in dir. Another takes the place of one that
// has ended meanwhile, but not of one with a sandbox, whose scratch space is used.
func (s *supervisors) hand(
	conn *supervise.Conn, of *spare, dir string, res *resources,
) (*supervise.Conn, error) {
	fault.Point("executor.spawn.before")
	null, err := os.Open(os.DevNull)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("hand over attempt: %w", err)
	}
	defer null.Close()
	stderr, err := os.OpenFile(filepath.Join(dir, supervise.ErrorFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("hand over attempt: %w", err)
	}
	defer stderr.Close()
	if err = conn.Hand(dir, stderr, res.files(null)); err != nil {
		conn.Close()
		if res.group != "" {
			return nil, err
		}
		again, e2 := s.start(of.command)
		if e2 != nil {
			return nil, errors.Join(err, e2)
		}
		if conn, err = again, again.Hand(dir, stderr, res.files(null)); err != nil {
			conn.Close()
			return nil, err
		}
	}
	fault.Point("executor.spawn.after")
	return conn, nil
}
