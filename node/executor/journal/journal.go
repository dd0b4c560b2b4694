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

// ErrHeld is returned by Open while another process holds the journal: the
// attempt's supervisor lives.
var ErrHeld = errors.New("journal is held by a living supervisor")

// maxBytes bounds what is read of a journal; a whole one has four lines.
const maxBytes = 1 << 20

// State is what a journal says: how far the attempt came.
type State struct {
	Starting  bool            // The code may have been started.
	Damaged   bool            // A line is not what was written, or not readable; Starting is then set.
	ExecletAt compute.Instant // When the supervisor took the attempt on.
	StartedAt compute.Instant // When the code started; zero when it did not.
	Outcome   *compute.Outcome
}

// Unbegun reports whether the code was never started, and nothing else is known of
// the attempt's end. While nobody watches over it no code can start, so that the
// attempt may restart when the state still wants it.
func (s State) Unbegun() bool {
	return (!s.Starting || fault.Planted(fault.IgnoredStarting)) && s.Outcome == nil
}

// Journal is one attempt's journal, held by this process.
type Journal struct {
	file  *os.File
	state State
}

// Create makes the empty journal of a new attempt at path. Its entry in the
// directory is not durable yet: that is the supervisor's to see to.
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

// Read returns what the journal at path says, whoever holds it.
func Read(path string) (State, error) {
	file, err := os.Open(path)
	if err != nil {
		return State{}, fmt.Errorf("read journal: %w", err)
	}
	defer file.Close()
	return read(file)
}

// Open takes the journal at path and returns it with what it says. The lock
// goes with the process: ErrHeld means that another one lives. A journal that is
// taken and cannot be read, for a bad sector, is a damaged one; one that cannot
// be opened is an error, and may be held.
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

// State returns what the journal says.
func (j *Journal) State() State { return j.state }

// Starting says, durably, that the code is about to be started.
func (j *Journal) Starting(at compute.Instant) error {
	j.state.Starting, j.state.ExecletAt = true, at
	return j.append(starting(at), true)
}

// Started says that the code started.
func (j *Journal) Started(at compute.Instant) error {
	j.state.StartedAt = at
	return j.append(started(at), false)
}

// Ended says, durably, how the attempt ended.
func (j *Journal) Ended(outcome compute.Outcome) error {
	j.state.Outcome = &outcome
	return j.append(recordOf(outcome), true)
}

// Close lets go of the journal.
func (j *Journal) Close() error { return j.file.Close() }

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

// read folds the lines of r.
func read(r io.Reader) (State, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes))
	if err != nil {
		return State{}, fmt.Errorf("read journal: %w", err)
	}
	return Parse(data), nil
}

// Parse returns what data, the bytes of a journal, says.
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
