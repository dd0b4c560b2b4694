package sandbox

import (
	"io/fs"
	"os"
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
	ScratchDisk bool  `json:"scratch_disk,omitempty"` // WorkDir and /tmp are on the disk that Start got.

	Argv       []string `json:"argv"`
	Env        []string `json:"env"`
	Early      *Early   `json:"early,omitempty"` // Starts the program before Execute; nil for none.
	MaxProcs   uint64   `json:"max_procs"`
	MaxFiles   uint64   `json:"max_files"`
	Seccomp    []byte   `json:"seccomp"` // An array of struct sock_filter; empty for no filter.
	Landlock   Landlock `json:"landlock"`
	OwnNetwork bool     `json:"own_network"` // A new network namespace with only lo, instead of the caller's.
}

// Early is a program that starts while the files of its work directory are not there
// yet. It waits at descriptor EarlyInput for its arguments and variables, which are
// Argv and Env of the spec: their number, the arguments and the variables, with a NUL
// behind each but the last.
type Early struct {
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
}

// EarlyInput is the descriptor of what an early program is to do.
const EarlyInput = 3

// Bind is a bind mount of a file or directory of the machine.
type Bind struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	Writable bool   `json:"writable,omitempty"`
	Device   bool   `json:"device,omitempty"` // A device file that may be opened.
	Dir      bool   `json:"dir,omitempty"`    // Set by Start.

	// Mount is a detached mount of a directory that is attached at Target instead of
	// a clone of Source.
	Mount *os.File `json:"-"`
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
