package slot

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/node/executor/supervise"
)

const (
	maxNote       = 1 << 10 // Bytes of a slot's file.
	connectedMark = "+"     // Ends the note of a slot that is marked.
)

// note is what the file of a slot has.
type note struct {
	owner     string // Whose network the slot has for containers; "" for nobody's.
	pid       int    // The process of the owner that took the slot last,
	start     uint64 // and when that began, in ticks since boot.
	connected bool   // An attempt with a network had the slot since its connections were last removed.
}

func parse(text string) (n note) {
	text, n.connected = strings.CutSuffix(text, connectedMark)
	if found, _ := fmt.Sscanf(text, "%s %d %d", &n.owner, &n.pid, &n.start); found != 3 {
		n.owner = ""
	}
	return n
}

func (n note) String() string {
	text := ""
	if n.owner != "" {
		text = fmt.Sprintf("%s %d %d", n.owner, n.pid, n.start)
	}
	if n.connected {
		text += connectedMark
	}
	return text
}

// lives reports whether the process of the owner lives.
func (n note) lives() bool {
	if n.owner == "" {
		return false
	}
	start, err := supervise.StartTime(n.pid)
	return err == nil && start == n.start
}

// noteOf returns the note of a slot that another attempt may have.
func (d *Dir) noteOf(number int) (note, error) {
	text, err := os.ReadFile(filepath.Join(d.path, strconv.Itoa(number)))
	if err != nil {
		return note{}, fmt.Errorf("read slot: %w", err)
	}
	return parse(string(text)), nil
}

// note returns the note of a slot that the caller has.
func (s *Slot) note() (note, error) {
	text, err := io.ReadAll(io.NewSectionReader(s.File, 0, maxNote))
	if err != nil {
		return note{}, fmt.Errorf("read slot: %w", err)
	}
	return parse(string(text)), nil
}

// write changes the note of a slot that the caller has.
func (s *Slot) write(change func(*note)) error {
	n, err := s.note()
	if err != nil {
		return err
	}
	change(&n)
	if err = s.File.Truncate(0); err == nil {
		_, err = s.File.WriteAt([]byte(n.String()), 0)
	}
	if err != nil {
		return fmt.Errorf("mark slot: %w", err)
	}
	return nil
}

// change is write that gives the slot back if it fails.
func (s *Slot) change(change func(*note)) (*Slot, error) {
	if err := s.write(change); err != nil {
		s.File.Close()
		return nil, err
	}
	return s, nil
}
