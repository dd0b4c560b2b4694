package world

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// fillerName is the file that fills a disk.
const fillerName = "filler"

// Fill leaves the given number of bytes of the node's disk free.
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

// Empty frees the space that Fill took.
func (n *Node) Empty() error {
	err := os.Remove(filepath.Join(n.data(), fillerName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// pageSize is the unit of damage to a file.
const pageSize = 4 << 10

// page is one piece of a file that contains data. A replica's files are longer
// than their used part, and damage to unused pages has no effect.
type page struct {
	path string
	at   int64
	data []byte
}

// pages returns the used pages of the files of the node's replica.
func (n *Node) pages() ([]page, error) {
	var all []page
	err := filepath.WalkDir(n.replica(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		at := int64(0)
		for piece := range slices.Chunk(data, pageSize) {
			if len(bytes.Trim(piece, "\x00")) > 0 {
				all = append(all, page{path, at, piece})
			}
			at += pageSize
		}
		return err
	})
	return all, err
}

func (n *Node) replica() string { return filepath.Join(n.data(), "raft") }

// RaftLog returns the path of the file of the node's Raft log.
func (n *Node) RaftLog() string { return filepath.Join(n.replica(), "raft.db") }

// Damage flips a random bit in a file of a stopped node's replica, or truncates
// the file. It returns a description.
func (n *Node) Damage(rng *rand.Rand) (what string, err error) {
	all, err := n.pages()
	if err != nil || len(all) == 0 {
		return "", errors.Join(err, fmt.Errorf("%d pages to damage in %s", len(all), n.replica()))
	}
	hit := all[rng.IntN(len(all))]
	before, err := os.Stat(hit.path)
	if err != nil {
		return "", err
	}
	name, err := filepath.Rel(n.replica(), hit.path)
	if err != nil {
		return "", err
	}
	within := rng.IntN(len(hit.data))
	at := hit.at + int64(within)
	if rng.IntN(4) == 0 {
		return fmt.Sprintf("%s cut to %d of %d bytes", name, at, before.Size()), os.Truncate(hit.path, at)
	}
	f, err := os.OpenFile(hit.path, os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	_, err = f.WriteAt([]byte{hit.data[within] ^ 1<<rng.IntN(8)}, at)
	return fmt.Sprintf("a bit of byte %d of %s", at, name), errors.Join(err, f.Sync(), f.Close())
}

// Asides returns the paths of the replicas and snapshots that the node has set
// aside as damaged or as stale. The node keeps the newest few.
func (n *Node) Asides() ([]string, error) {
	return filepath.Glob(filepath.Join(n.data(), "quarantine", "*"))
}

// Arm replaces the failpoint rules in the node's running process; "" removes
// all. It needs a program built with the tag faults.
func (n *Node) Arm(rules string) error {
	part := n.faultsFile() + ".part"
	if err := os.WriteFile(part, []byte(rules), 0o600); err != nil {
		return err
	}
	return os.Rename(part, n.faultsFile())
}

func (n *Node) faultsFile() string { return filepath.Join(n.dir, "faults") }
