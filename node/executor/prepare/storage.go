package prepare

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/compute"
	"berth/fault"
	"berth/node/executor/inputs"
	"berth/node/executor/live"
	"berth/node/executor/mount"
	"berth/node/executor/program"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

// Storage says how the buckets of organizations are mounted for executions.
type Storage struct {
	Socket string // Path of the socket of this node's S3 endpoint; "" for no mounts.
	// Access returns how the bucket of a live attempt is reached.
	Access func(ctx context.Context, w compute.Work) (*compute.StorageAccess, error)
}

const (
	stagingDirName = "storage"
	storageDir     = "/run/berth/storage" // Not in the data directory: nothing that removes files passes it.
	stagingMiB     = 10 << 10             // Limit of files that are being written, unless the scratch space has a size.
	mountTime      = 30 * time.Second
)

// buckets mounts the buckets of organizations.
type buckets struct {
	cfg     *Config
	calls   *live.Calls
	groups  *live.Groups
	volumes *volumes
}

// take mounts the bucket for the work, if it asked for that.
func (b *buckets) take(ctx context.Context, a *live.Attempt, w compute.Work, res *resources) error {
	asked := w.Execution.Storage
	if asked == nil {
		return nil
	}
	if why := b.cannotMount(w.Execution); why != "" && asked.Optional {
		res.notes = append(res.notes, fmt.Sprintf("storage: not mounted at %s (%s)", asked.Path, why))
		return nil
	} else if why != "" {
		return compute.Errorf(compute.CodeUnavailable, "storage cannot be mounted at %s: %s", asked.Path, why)
	}
	var access *compute.StorageAccess
	err := b.calls.Input(ctx, func(ctx context.Context) (err error) {
		access, err = b.cfg.Storage.Access(ctx, w)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: its storage: %w", inputs.ErrUnread, err)
	}
	staging := filepath.Join(b.cfg.DataDir, stagingDirName)
	dir := filepath.Join(storageDir, b.groups.Name(a.Key))
	if err := errors.Join(os.MkdirAll(staging, 0o700), os.MkdirAll(dir, 0o700)); err != nil {
		return fmt.Errorf("mount storage: %w", err)
	}
	settings := mount.Settings{
		Dir: dir, Socket: b.cfg.Storage.Socket, Access: access, Staging: staging,
		MaxBytes: cmp.Or(w.Execution.ScratchMiB, b.cfg.ScratchMiB, stagingMiB) << 20,
	}
	if res.container == nil {
		settings.UID = uint32(res.slot.UID() + sandbox.UserID)
	}
	if res.storage, err = startMount(&settings); err != nil {
		mount.Detach(dir)
		return fmt.Errorf("mount storage: %w", err)
	}
	res.mounted = &sandbox.Bind{Source: dir, Target: asked.Path, Writable: true}
	return nil
}

// cannotMount says why the bucket cannot be mounted for an execution, "" when it can.
func (b *buckets) cannotMount(x *compute.Execution) string {
	if b.cfg.Storage.Socket == "" {
		return "this node has no socket for it: see its log"
	}
	if !mount.Available() {
		return "this node has no /dev/fuse: its kernel needs the module fuse"
	}
	volumes, err := b.volumes.binds(x)
	if err != nil {
		return "" // It is refused for that.
	}
	for _, v := range volumes {
		if compute.PathsOverlap(v.Target, x.Storage.Path) {
			return "this node has a volume at " + v.Target
		}
	}
	return ""
}

// startMount starts the process of a mount, and returns once it is there. The process
// ends when the socket is closed.
func startMount(settings *mount.Settings) (*os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "storage"), os.NewFile(uintptr(fds[1]), "storage")
	defer theirs.Close()
	// It says on the socket what went wrong. The output of the node ends with the node.
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		ours.Close()
		return nil, err
	}
	defer null.Close()
	process, err := os.StartProcess(program.Own, []string{"berth", mount.Command}, &os.ProcAttr{
		Dir: "/", Env: append(fault.Environment(), "MALLOC_ARENA_MAX=1"),
		Files: []*os.File{theirs, null, null}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		ours.Close()
		return nil, err
	}
	go func() {
		// Only reaps the process.
		_, _ = process.Wait()
	}()
	if err := greet(ours, settings); err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}

// greet tells the process of a mount what it does, and waits for its answer.
func greet(socket *os.File, settings *mount.Settings) error {
	timeout := syscall.NsecToTimeval(int64(mountTime))
	if err := syscall.SetsockoptTimeval(int(socket.Fd()), syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &timeout); err != nil {
		return err
	}
	if err := json.NewEncoder(socket).Encode(settings); err != nil {
		return err
	}
	line, err := bufio.NewReader(socket).ReadString('\n')
	if err != nil {
		return err
	}
	if word := strings.TrimSpace(line); word != supervise.StorageReady {
		return errors.New(word)
	}
	// The supervisor waits as long as it wants.
	return syscall.SetsockoptTimeval(int(socket.Fd()), syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, new(syscall.Timeval))
}

// reap unmounts what killed processes left.
func (b *buckets) reap(supervised func(attempt string) bool) error {
	return detachAll(b.groups.Prefix(), supervised)
}

// detachAll unmounts the buckets of a node's attempts, but for those that live.
func detachAll(prefix string, live func(attempt string) bool) error {
	left, err := os.ReadDir(storageDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("unmount storage: %w", err)
	}
	for _, entry := range left {
		if attempt, ours := strings.CutPrefix(entry.Name(), prefix); ours && !live(attempt) {
			mount.Detach(filepath.Join(storageDir, entry.Name()))
		}
	}
	return nil
}
