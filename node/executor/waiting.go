package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"berth/node/executor/docker"
	"berth/node/executor/supervise"
)

// spareTime is how long a supervisor of containers waits for an attempt before it ends.
const spareTime = 5 * time.Minute

// spare is at most one supervisor of containers that waits for its attempt: its program
// initialises the client of the engine, and a container would start that much later.
type spare struct {
	mu     sync.Mutex
	conn   *supervise.Conn // Nil for none.
	limit  *time.Timer
	closed bool
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

// waits reports whether a supervisor waits.
func (s *spare) waits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn != nil
}

// put has a supervisor wait for the next attempt. It ends if another one waits already.
func (s *spare) put(conn *supervise.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil || s.closed {
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

// takeSupervisor returns a supervisor of containers that waits for its attempt.
func (e *Executor) takeSupervisor() (*supervise.Conn, error) {
	if conn := e.spare.take(); conn != nil {
		return conn, nil
	}
	return e.startWaiting()
}

// keepSupervisor has a supervisor wait for the next attempt in containers.
func (e *Executor) keepSupervisor() {
	if e.spare.waits() {
		return
	}
	if conn, err := e.startWaiting(); err == nil { // Else the next attempt has the error.
		e.spare.put(conn)
	}
}

// startWaiting starts a supervisor of containers without an attempt.
func (e *Executor) startWaiting() (*supervise.Conn, error) {
	conn, theirs, err := supervise.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		defer null.Close()
		err = e.startProcess(supervise.Placeholders(null, theirs), docker.Command)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	return conn, nil
}

// hand gives a supervisor that waits the attempt in dir. Another takes the place of one that
// has ended meanwhile.
func (e *Executor) hand(conn *supervise.Conn, dir string, res *resources) (*supervise.Conn, error) {
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
	if err = conn.Hand(dir, stderr, res.files(null)); err != nil {
		conn.Close()
		again, e2 := e.startWaiting()
		if e2 != nil {
			return nil, errors.Join(err, e2)
		}
		if conn, err = again, again.Hand(dir, stderr, res.files(null)); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return conn, nil
}
