package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

const (
	machineSlots = slots("/run/berth/slots")

	maxSlots = 4096       // Concurrent attempts of all nodes of one machine.
	firstUID = 0x70000000 // Above the ids that distributions and systemd assign.
)

// slot is a number that belongs to one attempt at a time among all nodes of the
// machine. The attempt's user ids and network addresses derive from it. A file
// lock holds it. The lock is released when the last process that has the file open
// exits, which is the supervisor.
type slot struct {
	number int
	file   *os.File
}

// slots is the directory of the files that hold slots.
type slots string

// take returns the lowest free slot.
func (d slots) take() (*slot, error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, fmt.Errorf("take slot: %w", err)
	}
	for number := range maxSlots {
		if s, err := d.lock(number); s != nil || err != nil {
			return s, err
		}
	}
	return nil, fmt.Errorf("take slot: all %d are taken", maxSlots)
}

// lock returns a slot, nil if it is taken.
func (d slots) lock(number int) (*slot, error) {
	file, err := os.OpenFile(filepath.Join(string(d), strconv.Itoa(number)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("take slot: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &slot{number: number, file: file}, nil
	}
	file.Close()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("take slot: %w", err)
	}
	return nil, nil //nolint:nilnil // Nil is taken.
}

// takeOwn returns a slot for containers of an owner. Engines keep the network of a slot,
// which is the owner's: so it is one that the owner has had before, else one of the first that
// no node whose process lives has had for containers, else any.
func (d slots) takeOwn(owner string, first int) (*slot, error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, fmt.Errorf("take slot: %w", err)
	}
	var unowned []int
	for number := range maxSlots {
		name, lives, err := d.owner(number)
		if err != nil {
			unowned = append(unowned, number)
			break // None behind it was ever taken.
		}
		if name == owner {
			if s, err := d.lock(number); s != nil || err != nil {
				return s.ownedBy(owner, err)
			}
		} else if !lives {
			unowned = append(unowned, number)
		}
	}
	for _, number := range unowned {
		if number >= first {
			break
		}
		if s, err := d.lock(number); s != nil || err != nil {
			return s.ownedBy(owner, err)
		}
	}
	s, err := d.take()
	return s.ownedBy(owner, err)
}

// owner returns whose network a slot has for containers, "" for nobody's, and whether the
// process lives that took it last.
func (d slots) owner(number int) (owner string, lives bool, err error) {
	text, err := os.ReadFile(filepath.Join(string(d), strconv.Itoa(number)))
	if err != nil {
		return "", false, err
	}
	var pid int
	var start uint64
	if n, _ := fmt.Sscanf(string(text), "%s %d %d", &owner, &pid, &start); n != 3 {
		return "", false, nil
	}
	now, err := supervise.StartTime(pid)
	return owner, err == nil && now == start, nil
}

// ownedBy notes the owner of the network of a slot's containers.
func (s *slot) ownedBy(owner string, err error) (*slot, error) {
	if err == nil {
		if err = s.file.Truncate(0); err == nil {
			start, _ := supervise.StartTime(os.Getpid()) // Without it the owner seems dead, and others may take the network.
			_, err = fmt.Fprintf(s.file, "%s %d %d", owner, os.Getpid(), start)
		}
		if err != nil {
			s.file.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("take slot: %w", err)
	}
	return s, nil
}

// disown lets others have the networks of the free slots of an owner.
func (d slots) disown(owner string) {
	for number := range maxSlots {
		name, _, err := d.owner(number)
		if err != nil {
			return
		}
		if name != owner {
			continue
		}
		if s, _ := d.lock(number); s != nil { // One that is taken keeps its owner.
			_ = s.file.Truncate(0)
			s.file.Close()
		}
	}
}

// uid returns the first of the slot's user ids.
func (s *slot) uid() int { return firstUID + s.number*sandbox.UIDs }
