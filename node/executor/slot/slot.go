package slot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"

	"berth/node/executor/sandbox"
)

const (
	// Max is the number of concurrent attempts of all nodes of one machine.
	Max = 4096

	firstUID       = 0x70000000 // Above the ids that distributions and systemd assign.
	firstConnected = 1024       // Slots of networks that are taken in turn. Containers keep theirs in the lower ones.
	cleanedAtOnce  = 512        // Marked slots whose connections one walk removes at most.
)

// errTaken means that another attempt has the slot.
var errTaken = errors.New("slot is taken")

// Dir has the locks of the slots of one machine. Its methods are safe for concurrent use.
type Dir struct {
	path  string
	slots int           // Max; the slots are below it.
	first int           // firstConnected; those with a network are from it on, as long as any is free.
	next  atomic.Uint32 // The next slot with a network, counted from first.
}

// Machine returns the slots that all nodes of this machine share.
func Machine() *Dir { return In("/run/berth/slots") }

// In returns the slots whose locks are in a directory.
func In(path string) *Dir { return &Dir{path: path, slots: Max, first: firstConnected} }

// Slot is a slot that the caller has.
type Slot struct {
	Number int
	File   *os.File // Its lock is released when the last process that has the file open exits: the supervisor.
}

// UID returns the first of the slot's user ids.
func (s *Slot) UID() int { return firstUID + s.Number*sandbox.UIDs }

// Take returns the lowest free slot, for an attempt that does not use the address of
// the slot.
func (d *Dir) Take() (*Slot, error) {
	return d.firstOf([]span{{0, d.slots}})
}

// TakeConnected returns a free slot for an attempt that uses its address. forget removes
// the connections of slots that earlier attempts had, and is called when there may be
// any: for this slot, and for others that are free and come next. No attempt has those
// meanwhile.
func (d *Dir) TakeConnected(forget func(slots []int) error) (*Slot, error) {
	from := d.first + int(d.next.Add(1)-1)%(d.slots-d.first)
	s, err := d.firstOf([]span{{from, d.slots}, {d.first, from}, {0, d.first}})
	if err != nil {
		return nil, err
	}
	if err := d.clean(s, forget); err != nil {
		s.File.Close()
		return nil, err
	}
	if _, err := s.File.WriteAt([]byte{'c'}, 0); err != nil {
		s.File.Close()
		return nil, fmt.Errorf("mark slot: %w", err)
	}
	return s, nil
}

// span is a range of slots, without its end.
type span struct{ from, to int }

// firstOf returns the first free slot of the spans.
func (d *Dir) firstOf(spans []span) (*Slot, error) {
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return nil, fmt.Errorf("take slot: %w", err)
	}
	for _, span := range spans {
		for number := span.from; number < span.to; number++ {
			if s, err := d.lock(number); !errors.Is(err, errTaken) {
				return s, err
			}
		}
	}
	return nil, fmt.Errorf("take slot: all %d are taken", d.slots)
}

func (d *Dir) lock(number int) (*Slot, error) {
	file, err := os.OpenFile(filepath.Join(d.path, strconv.Itoa(number)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("take slot: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &Slot{Number: number, File: file}, nil
	}
	file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errTaken
	}
	return nil, fmt.Errorf("take slot: %w", err)
}

// clean removes the connections of the slot if it is marked, and those of other marked
// slots that are free.
func (d *Dir) clean(s *Slot, forget func([]int) error) error {
	if marked, err := s.marked(); err != nil || !marked {
		return err
	}
	batch := []*Slot{s}
	defer func() {
		for _, other := range batch[1:] {
			other.File.Close()
		}
	}()
	for number := s.Number + 1; number < d.slots && len(batch) < cleanedAtOnce; number++ {
		if info, err := os.Stat(filepath.Join(d.path, strconv.Itoa(number))); err != nil || info.Size() == 0 {
			continue
		}
		if other, err := d.lock(number); err == nil {
			batch = append(batch, other)
		}
	}
	numbers := make([]int, len(batch))
	for i, one := range batch {
		numbers[i] = one.Number
	}
	if err := forget(numbers); err != nil {
		return err
	}
	for _, one := range batch {
		if err := one.File.Truncate(0); err != nil {
			return fmt.Errorf("clean slot: %w", err)
		}
	}
	return nil
}

// marked reports whether an attempt with a network had the slot since its connections
// were last removed.
func (s *Slot) marked() (bool, error) {
	info, err := s.File.Stat()
	if err != nil {
		return false, fmt.Errorf("read slot: %w", err)
	}
	return info.Size() > 0, nil
}
