package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"berth/compute"
	"berth/fault"
	"berth/node/executor/supervise"
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

// spareFor returns the place of supervisors that attempts of an execution need.
func (e *Executor) spareFor(x *compute.Execution) *spare {
	if x.Container != nil {
		return &e.containerSpare
	}
	return &e.sandboxSpare
}

// takeSupervisor returns a supervisor that waits for its attempt, or starts one.
func (e *Executor) takeSupervisor(s *spare) (*supervise.Conn, error) {
	if conn := s.take(); conn != nil {
		return conn, nil
	}
	return e.startWaiting(s.command)
}

// keepSupervisor has a supervisor wait for the next attempt, if none does.
func (e *Executor) keepSupervisor(s *spare) {
	if !s.begin() {
		return
	}
	conn, err := e.startWaiting(s.command)
	if err != nil {
		conn = nil // The next attempt has the error.
	}
	s.put(conn)
}

// startWaiting starts a supervisor without an attempt.
func (e *Executor) startWaiting(command string) (*supervise.Conn, error) {
	conn, theirs, err := supervise.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		defer null.Close()
		err = e.startProcess(supervise.Placeholders(null, theirs), command, supervise.Waiting(e.attemptsDir()))
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	return conn, nil
}

// hand gives a supervisor that waits the attempt in dir. Another takes the place of one that
// has ended meanwhile, but not of one with a sandbox, whose scratch space is used.
func (e *Executor) hand(conn *supervise.Conn, s *spare, dir string, res *resources) (*supervise.Conn, error) {
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
		again, e2 := e.startWaiting(s.command)
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
