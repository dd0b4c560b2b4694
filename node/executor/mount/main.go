package mount

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aws/smithy-go"
	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"berth/compute"
	"berth/node/executor/supervise"
)

// Command is the argument by which the program reaches Main.
const Command = "mount-storage"

// Settings are the first line of the input of the process.
type Settings struct {
	Dir      string                 `json:"dir"`    // Where it mounts; an empty directory.
	Socket   string                 `json:"socket"` // Path of the socket of the node's S3 endpoint.
	Access   *compute.StorageAccess `json:"access"`
	Staging  string                 `json:"staging"`   // A directory on this disk.
	MaxBytes int64                  `json:"max_bytes"` // Limit of staged bytes.
	UID      uint32                 `json:"uid"`       // Owner of the files.
}

const (
	memoryLimit = 256 << 20 // From here on it collects garbage all the time,
	maxMemory   = 1 << 30   // and here it ends.
	maxNamed    = 5         // Files in a message.
	fsName      = "berth"
	inSandbox   = uintptr(syscall.MS_NOSUID | syscall.MS_NODEV)
)

// TakeOver calls Main, and ends the process, if this process was started to mount a
// bucket. Programs and tests that start attempts call it first.
func TakeOver() {
	if len(os.Args) >= 2 && os.Args[0] == "berth" && os.Args[1] == Command {
		os.Exit(Main()) //nolint:forbidigo // This process is no node.
	}
}

// Main serves one mount until its standard input ends, or asks for the end. It returns
// the exit code of the process.
func Main() int {
	debug.SetMemoryLimit(memoryLimit)
	// The kernel may make it remember any number of files.
	_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: maxMemory, Max: maxMemory})
	control := os.NewFile(0, "control")
	if err := serve(control); err != nil {
		fmt.Fprintln(os.Stderr, "mount storage:", err)
		fmt.Fprintln(control, "error", strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}

// serve mounts, says so, and waits for the end of the code.
func serve(control io.ReadWriter) error {
	lines := bufio.NewReader(control)
	first, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	var s Settings
	if err := json.Unmarshal(first, &s); err != nil {
		return err
	}
	t := &tree{
		bucket: newBucket(s.Access, s.Socket, usual()), staging: s.Staging, left: s.MaxBytes, uid: s.UID, gid: s.UID,
		files: make(map[string]*file), made: make(map[string]bool), listed: make(map[string]seen),
		broken: make(map[string]error),
	}
	t.blocks = &blocks{bucket: t.bucket}
	if err := attach(&s, t); err != nil {
		return err
	}
	// Detached, it goes with the last clone, which the code has. Without its process it
	// answers nothing.
	defer Detach(s.Dir)
	kept, err := unix.OpenTree(unix.AT_FDCWD, s.Dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("clone mount: %w", err)
	}
	if _, err := fmt.Fprintln(control, supervise.StorageReady); err != nil {
		return err
	}
	for {
		line, err := lines.ReadString('\n')
		switch word := strings.TrimSpace(line); {
		case err != nil:
			return nil // The supervisor is dead, and so is the code.
		case word == supervise.StorageCut:
			t.bucket.endCode()
			cut(kept, s.Dir)
		case word == supervise.StorageFinish:
			t.bucket.endCode()
			_, err := fmt.Fprintln(control, supervise.StorageDone, summary(t.saveAll(context.Background())))
			return err
		}
	}
}

// cut ends pending and later requests of the code to the file system with errors.
// Staged files can still be stored. Kept is a clone of the mount, which the directory
// may not have any more.
func cut(kept int, dir string) {
	_ = os.MkdirAll(dir, 0o700) // If this fails, code goes on waiting, which shows.
	_ = unix.MoveMount(kept, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH)
	_ = unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH)
	Detach(dir)
}

// now is the time on this machine, which nobody has to hand in to a process of its own.
func now() time.Time { return time.Now() } //nolint:forbidigo // The one place.

// summary says which files could not be stored; "" for none.
func summary(broken map[string]error) string {
	if len(broken) == 0 {
		return ""
	}
	keys := slices.Sorted(maps.Keys(broken))
	text := fmt.Sprintf("%d files could not be stored: %s", len(keys), strings.Join(keys[:min(len(keys), maxNamed)], ", "))
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text+": "+reason(broken[keys[0]]))
}

// reason says in a few words why a file could not be stored.
func reason(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode() + ": " + api.ErrorMessage()
	}
	return err.Error()
}

// attach mounts the tree, until the process ends.
func attach(s *Settings, t *tree) error {
	again := kernelTime
	_, err := fs.Mount(s.Dir, &dir{m: t}, &fs.Options{
		EntryTimeout: &again, AttrTimeout: &again, UID: s.UID, GID: s.UID, NullPermissions: true,
		Logger: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		MountOptions: fuse.MountOptions{
			AllowOther: true, FsName: s.Access.Bucket, Name: fsName, DirectMountStrict: true, DirectMountFlags: inSandbox,
			DisableXAttrs: true, DisableReadDirPlus: true, MaxWrite: 1 << 20, MaxReadAhead: blockBytes,
		},
	})
	return err
}

// Detach unmounts what is at a directory, and removes the directory. It deletes no file.
func Detach(dir string) {
	for range 2 {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			break
		}
	}
	_ = os.Remove(dir) // Only an empty one.
}

// Available reports whether this machine can mount.
func Available() bool {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
