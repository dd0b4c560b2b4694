package world

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fillerName is the file that makes a disk full.
const fillerName = "filler"

// Fill leaves so many bytes of the node's disk free.
func (n *Node) Fill(free int64) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(n.data(), &stat); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(n.data(), fillerName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if size := int64(stat.Bavail)*stat.Bsize - free; size > 0 {
		err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	}
	return errors.Join(err, f.Close())
}

// Empty gives back what Fill took.
func (n *Node) Empty() error {
	err := os.Remove(filepath.Join(n.data(), fillerName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Damage flips a bit of, or cuts, a file of the replica of a node that does not
// run, as chance has it. It returns what it did, and what puts the file back.
func (n *Node) Damage(rng *rand.Rand) (what string, restore func() error, err error) {
	var files []string
	root := filepath.Join(n.data(), "raft")
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > 0 {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		return "", nil, errors.Join(err, fmt.Errorf("%d files to damage in %s", len(files), root))
	}
	path := files[rng.IntN(len(files))]
	before, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	name, err := filepath.Rel(root, path)
	if err != nil {
		return "", nil, err
	}
	at := rng.IntN(len(before))
	restore = func() error { return os.WriteFile(path, before, 0o600) }
	if rng.IntN(4) == 0 {
		return fmt.Sprintf("%s cut to %d of %d bytes", name, at, len(before)), restore, os.Truncate(path, int64(at))
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return "", nil, err
	}
	_, err = f.WriteAt([]byte{before[at] ^ 1<<rng.IntN(8)}, int64(at))
	return fmt.Sprintf("a bit of byte %d of %s", at, name), restore, errors.Join(err, f.Sync(), f.Close())
}

// Asides returns how many replicas the node has set aside.
func (n *Node) Asides() (int, error) {
	entries, err := os.ReadDir(filepath.Join(n.data(), "quarantine"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return len(entries), err
}

// Arm puts failpoint rules into force in the node's living process, in place of
// those before; "" takes all back. It needs a program that was built with the
// tag faults.
func (n *Node) Arm(rules string) error {
	part := n.faultsFile() + ".part"
	if err := os.WriteFile(part, []byte(rules), 0o600); err != nil {
		return err
	}
	return os.Rename(part, n.faultsFile())
}

func (n *Node) faultsFile() string { return filepath.Join(n.dir, "faults") }
