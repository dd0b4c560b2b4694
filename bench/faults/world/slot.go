package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A slot lets several worlds share one machine: a number with a lock, names and
// addresses.
const (
	slotDir = "/run/berth-faults"
	slots   = 16
)

// slot is a slot that this process holds.
type slot struct {
	number int
	lock   *os.File // Contains the directory of the world that has the slot.
}

// name returns the prefix of the names of the slot's kernel objects.
func (s slot) name() string { return "bf" + strconv.Itoa(s.number) }

// address returns the address of the i-th host on the slot's network; the
// bridge is 1.
func (s slot) address(i int) string { return fmt.Sprintf("10.213.%d.%d", s.number, i) }

// takeSlot takes a free slot for the world in dir and removes the rest of a killed
// world in it.
func takeSlot(ctx context.Context, dir string) (slot, error) {
	if err := os.MkdirAll(slotDir, 0o700); err != nil {
		return slot{}, err
	}
	for number := range slots {
		lock, err := os.OpenFile(filepath.Join(slotDir, strconv.Itoa(number)), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return slot{}, err
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			err := lock.Close()
			if err != nil {
				return slot{}, err
			}
			continue
		}
		s := slot{number, lock}
		old, err := os.ReadFile(lock.Name())
		if err == nil {
			err = s.cleanUp(ctx, string(old))
		}
		if err == nil {
			err = errors.Join(lock.Truncate(0), writeAt(lock, dir))
		}
		if err != nil {
			return slot{}, errors.Join(err, lock.Close())
		}
		return s, nil
	}
	return slot{}, fmt.Errorf("all %d slots in %s are taken", slots, slotDir)
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// release releases the slot, which must be empty.
func (s slot) release() error { return errors.Join(s.lock.Truncate(0), s.lock.Close()) }

// cleanUp removes everything that the world in dir has left, in order of
// dependency: processes, cgroups, file systems, networks.
func (s slot) cleanUp(ctx context.Context, dir string) error {
	var errs []error
	if dir != "" {
		errs = append(errs, endProcesses(ctx, dir), reapNodes(dir), unmountAll(ctx, dir), removeGroups(s.name()))
	}
	return errors.Join(append(errs, s.removeNetwork(ctx))...)
}

// removeNetwork removes the namespaces and the bridge of the slot. The veth
// pairs go with the namespaces.
func (s slot) removeNetwork(ctx context.Context) error {
	s.passDocker(ctx, "-D")
	names, err := os.ReadDir("/run/netns")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var errs []error
	for _, entry := range names {
		if strings.HasPrefix(entry.Name(), s.name()+"-") {
			err := command(ctx, "", "ip", "netns", "del", entry.Name())
			errs = append(errs, err)
		}
	}
	links, err := filepath.Glob("/sys/class/net/" + s.name() + "-*")
	errs = append(errs, err)
	for _, link := range append(links, "/sys/class/net/"+s.name()) {
		if _, err := os.Stat(link); err == nil {
			err = command(ctx, "", "ip", "link", "del", filepath.Base(link))
			if _, still := os.Stat(link); still != nil {
				err = nil // Removed with its namespace meanwhile.
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return rest != "" && rest[0] != 'Z' && rest[0] != 'X' && syscall.Kill(pid, 0) == nil
}
