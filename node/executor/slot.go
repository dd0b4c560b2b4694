package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"berth/node/executor/sandbox"
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
// nobody has had for containers, else any.
func (d slots) takeOwn(owner string, first int) (*slot, error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, fmt.Errorf("take slot: %w", err)
	}
	var unowned []int
	for number := range maxSlots {
		name, err := os.ReadFile(filepath.Join(string(d), strconv.Itoa(number)))
		if err != nil {
			unowned = append(unowned, number)
			break // None behind it was ever taken.
		}
		if len(name) == 0 {
			unowned = append(unowned, number)
		}
		if string(name) == owner {
			if s, err := d.lock(number); s != nil || err != nil {
				return s, err
			}
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

// ownedBy notes the owner of the network of a slot's containers.
func (s *slot) ownedBy(owner string, err error) (*slot, error) {
	if err == nil {
		if err = s.file.Truncate(0); err == nil {
			_, err = s.file.WriteString(owner)
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
		name, err := os.ReadFile(filepath.Join(string(d), strconv.Itoa(number)))
		if err != nil {
			return
		}
		if string(name) != owner {
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
