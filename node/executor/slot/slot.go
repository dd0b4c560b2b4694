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
	"berth/node/executor/supervise"
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
	File   *os.File // Its lock is released when the last process closes it: the supervisor.
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
	return s.change(func(n *note) { n.connected = true })
}

// TakeOwned returns a slot for containers of an owner. Engines keep the network of a slot,
// which is the owner's: so it is one that the owner has had before, else one of the first that
// no node whose process lives has had for containers, else any.
func (d *Dir) TakeOwned(owner string, first int) (*Slot, error) {
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return nil, fmt.Errorf("take slot: %w", err)
	}
	var unowned []int
	for number := range d.slots {
		n, err := d.noteOf(number)
		if err != nil {
			unowned = append(unowned, number)
			break // None behind it was ever taken for containers.
		}
		if n.owner == owner {
			if s, err := d.lock(number); !errors.Is(err, errTaken) {
				return s.ownedBy(owner, err)
			}
		} else if !n.lives() {
			unowned = append(unowned, number)
		}
	}
	for _, number := range unowned {
		if number >= first {
			break
		}
		if s, err := d.lock(number); !errors.Is(err, errTaken) {
			return s.ownedBy(owner, err)
		}
	}
	s, err := d.Take()
	return s.ownedBy(owner, err)
}

// ownedBy notes the owner of the network of a slot's containers, and this process of it.
func (s *Slot) ownedBy(owner string, err error) (*Slot, error) {
	if err != nil {
		return nil, err
	}
	start, _ := supervise.StartTime(os.Getpid()) // Without it the owner seems dead, and others may take the network.
	return s.change(func(n *note) { n.owner, n.pid, n.start = owner, os.Getpid(), start })
}

// Disown lets others have the networks of the free slots of an owner.
func (d *Dir) Disown(owner string) {
	for number := range d.slots {
		n, err := d.noteOf(number)
		if err != nil {
			return
		}
		if n.owner != owner {
			continue
		}
		if s, err := d.lock(number); err == nil { // One that is taken keeps its owner.
			if s, err = s.change(func(n *note) { n.owner = "" }); err == nil {
				s.File.Close()
			}
		}
	}
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
	if n, err := s.note(); err != nil || !n.connected {
		return err
	}
	batch := []*Slot{s}
	defer func() {
		for _, other := range batch[1:] {
			other.File.Close()
		}
	}()
	for number := s.Number + 1; number < d.slots && len(batch) < cleanedAtOnce; number++ {
		if n, err := d.noteOf(number); err != nil || !n.connected {
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
		if err := one.write(func(n *note) { n.connected = false }); err != nil {
			return err
		}
	}
	return nil
}
