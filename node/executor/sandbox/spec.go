package sandbox

import (
	"io/fs"
	"os"
	"slices"
)

// Spec describes one sandbox. Paths are inside it, except Source and WorkSource.
type Spec struct {
	UIDBase    int    `json:"uid_base"` // First of the UIDs host ids that belong to this sandbox alone.
	Hostname   string `json:"hostname"`
	Binds      []Bind `json:"binds"` // Parents before children.
	Links      []Link `json:"links"`
	Files      []File `json:"files"`
	WorkSource string `json:"work_source"` // A file of WriteWork. The files in it become those in WorkDir.
	// ScratchMiB is the size of WorkDir, /tmp and /dev/shm together, which are in
	// memory. With ScratchDisk it is that of /dev/shm alone.
	ScratchMiB  int64 `json:"scratch_mib"`
	ScratchDisk bool  `json:"scratch_disk,omitempty"` // WorkDir and /tmp are on the disk that Prepare got.

	Argv       []string `json:"argv"`
	Env        []string `json:"env"`
	MaxProcs   uint64   `json:"max_procs"`
	MaxFiles   uint64   `json:"max_files"`
	Seccomp    []byte   `json:"seccomp"` // An array of struct sock_filter; empty for no filter.
	Landlock   Landlock `json:"landlock"`
	OwnNetwork bool     `json:"own_network"` // A new network namespace with only lo, instead of the caller's.
}

// root returns the part of the spec that a first process needs to build the root.
func (s *Spec) root() *Spec {
	return &Spec{
		UIDBase: s.UIDBase, Hostname: s.Hostname, Binds: slices.Clone(s.Binds),
		ScratchMiB: s.ScratchMiB, ScratchDisk: s.ScratchDisk, OwnNetwork: s.OwnNetwork,
	}
}

// begins reports whether a sandbox that was prepared by this spec can be completed by another one.
func (s *Spec) begins(whole *Spec) bool {
	more := len(whole.Binds) - len(s.Binds)
	return s.UIDBase == whole.UIDBase && s.Hostname == whole.Hostname && s.OwnNetwork == whole.OwnNetwork &&
		s.ScratchDisk == whole.ScratchDisk && more >= 0 && more <= MaxLater &&
		slices.EqualFunc(s.Binds, whole.Binds[:len(s.Binds)], Bind.same)
}

// Bind is a bind mount of a file or directory of the machine.
type Bind struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	Writable bool   `json:"writable,omitempty"`
	Device   bool   `json:"device,omitempty"` // A device file that may be opened.
	Dir      bool   `json:"dir,omitempty"`    // Set when it is opened.

	// Mount is a detached mount of a directory that is attached at Target instead of
	// a clone of Source.
	Mount *os.File `json:"-"`
}

// same reports whether two bind mounts show the same.
func (b Bind) same(other Bind) bool {
	b.Dir = other.Dir
	return b == other
}

// Link is a symbolic link.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// File is a small file in the root.
type File struct {
	Path string      `json:"path"`
	Text string      `json:"text"`
	Mode fs.FileMode `json:"mode"`
}

// Landlock is the rule set: the rights that are handled, and those that are
// allowed beneath the root, the writable directories and the devices. Handled is 0
// on a kernel without Landlock.
type Landlock struct {
	Handled    uint64 `json:"handled"`
	Scoped     uint64 `json:"scoped"`
	Everywhere uint64 `json:"everywhere"`
	Writable   uint64 `json:"writable"`
	Device     uint64 `json:"device"`
	FileMask   uint64 `json:"file_mask"` // Rights that apply to a file.
}

const (
	// UIDs is the number of host ids that a sandbox owns.
	UIDs = 65536
	// UserID is the id of the program's user inside.
	UserID = 1000
	// WorkDir is the program's working directory.
	WorkDir = "/work"
)
