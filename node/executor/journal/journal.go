package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"berth/compute"
	"berth/fault"
)

// ErrHeld is returned by Open while another process holds the lock of the journal:
// the attempt's supervisor is alive.
var ErrHeld = errors.New("journal is held by a living supervisor")

// maxBytes limits how much of a journal is read. A complete one has three records.
const maxBytes = 1 << 20

// State is the content of a journal: how far the attempt got.
type State struct {
	Starting  bool            // The code may have been started.
	Damaged   bool            // A line is corrupt or cannot be read. Starting is then set too.
	ExecletAt compute.Instant // When the supervisor took over the attempt.
	StartedAt compute.Instant // When the code started. Zero when it did not.
	Outcome   *compute.Outcome
}

// NotStarted reports whether the code was never started and no outcome is recorded.
// If no supervisor holds the journal either, the attempt may be started again when
// the state still wants it.
func (s State) NotStarted() bool {
	return (!s.Starting || fault.Planted(fault.IgnoredStarting)) && s.Outcome == nil
}

// Journal is one attempt's journal, locked by this process.
type Journal struct {
	file  *os.File
	state State
}

// Create makes the empty journal of a new attempt at path. Its directory entry is
// not durable yet: the supervisor makes it so.
func Create(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return fmt.Errorf("create journal: %w", err)
	}
	return nil
}

// SyncDir makes the entries of the directory at path durable.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	err = dir.Sync()
	if e := dir.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

// Read returns the content of the journal at path, without taking the lock.
func Read(path string) (State, error) {
	file, err := os.Open(path)
	if err != nil {
		return State{}, fmt.Errorf("read journal: %w", err)
	}
	defer file.Close()
	return read(file)
}

// Open locks and reads the journal at path. The lock ends with Close or with its process, so
// ErrHeld means that another process is alive and supervises the attempt. A journal that is locked but cannot
// be read, for example because of a bad sector, counts as damaged. One that cannot
// be opened is an error: another process may hold it.
func Open(path string) (*Journal, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrHeld
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &Journal{file: file}
	if j.state, err = read(file); err != nil {
		j.state = State{Starting: true, Damaged: true}
	}
	return j, nil
}

// State returns the content of the journal.
func (j *Journal) State() State { return j.state }

// Starting records durably that the code is about to be started.
func (j *Journal) Starting(at compute.Instant) error {
	j.state.Starting, j.state.ExecletAt = true, at
	return j.append(starting(at), true)
}

// Started records that the code started. It does not wait for the disk.
func (j *Journal) Started(at compute.Instant) error {
	j.state.StartedAt = at
	return j.append(started(at), false)
}

// Ended records durably how the attempt ended.
func (j *Journal) Ended(outcome compute.Outcome) error {
	j.state.Outcome = &outcome
	return j.append(recordOf(outcome), true)
}

// Close closes the journal and releases the lock, also where a child that is being forked
// still holds the file.
func (j *Journal) Close() error {
	return errors.Join(syscall.Flock(int(j.file.Fd()), syscall.LOCK_UN), j.file.Close())
}

func (j *Journal) append(r record, durable bool) error {
	data, err := r.appended()
	if err != nil {
		return fmt.Errorf("append to journal: %w", err)
	}
	if _, err := j.file.Write(data); err != nil {
		return fmt.Errorf("append to journal: %w", err)
	}
	if !durable {
		return nil
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("append to journal: %w", err)
	}
	return nil
}

// read parses the lines of r.
func read(r io.Reader) (State, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes))
	if err != nil {
		return State{}, fmt.Errorf("read journal: %w", err)
	}
	return Parse(data), nil
}

// Parse returns the content of a journal from its bytes.
func Parse(data []byte) State {
	var s State
	for line := range bytes.Lines(data) {
		if len(line) == 1 && line[0] == '\n' {
			continue
		}
		r, err := parse(line)
		if err != nil {
			s.Damaged, s.Starting = true, true
			continue
		}
		switch r.Event {
		case eventStarting:
			s.Starting, s.ExecletAt = true, compute.Instant(r.AtMs)
		case eventStarted:
			s.StartedAt = compute.Instant(r.AtMs)
		case eventEnded:
			if s.Outcome == nil {
				s.Outcome = r.outcome()
			}
		}
	}
	return s
}
