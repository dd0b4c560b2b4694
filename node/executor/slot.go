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
	slotDir  = "/run/berth/slots"
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

// takeSlot returns the lowest free slot.
func takeSlot() (*slot, error) {
	if err := os.MkdirAll(slotDir, 0o700); err != nil {
		return nil, fmt.Errorf("take slot: %w", err)
	}
	for number := range maxSlots {
		file, err := os.OpenFile(filepath.Join(slotDir, strconv.Itoa(number)), os.O_CREATE|os.O_RDWR, 0o600)
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
	}
	return nil, fmt.Errorf("take slot: all %d are taken", maxSlots)
}

// uid returns the first of the slot's user ids.
func (s *slot) uid() int { return firstUID + s.number*sandbox.UIDs }
