package scratch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"berth/loop"
)

const (
	// Program makes file systems.
	Program = "mkfs.ext4"

	loopControl = "/dev/loop-control"

	// inodeBytes is how much disk space comes with one inode: 50 GiB have 1.6 million.
	inodeBytes = 32 << 10

	// MinMiB is the smallest file system.
	MinMiB = 16

	loopTries = 64 // Other processes may take a free device first.

	releaseTimeout = 30 * time.Second // For the kernel to unmount a file system that was written.
	releasePoll    = time.Millisecond
)

// Format makes a sparse file with an empty file system of the size. The file must
// not exist. It takes 200 KiB of disk until it is written to: the file system has no
// second superblocks, with which it would be repaired.
func Format(ctx context.Context, name string, sizeMiB int64) error {
	err := format(ctx, name, sizeMiB)
	if err != nil {
		return err
	}
	if err = empty(ctx, name); err != nil {
		_ = os.Remove(name)
		return fmt.Errorf("make file system: %w", err)
	}
	return nil
}

// format is Format, and leaves lost+found.
func format(ctx context.Context, name string, sizeMiB int64) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make file system: %w", err)
	}
	err = file.Truncate(max(sizeMiB, MinMiB) << 20)
	if err = errors.Join(err, file.Close()); err == nil {
		var stderr bytes.Buffer
		mkfs := exec.CommandContext(ctx, Program, "-q", "-F", "-O", "^has_journal,^resize_inode,sparse_super2",
			"-E", "lazy_itable_init=1,nodiscard,num_backup_sb=0", "-i", strconv.Itoa(inodeBytes), "-m", "0", name)
		mkfs.Stderr = &stderr
		if err = mkfs.Run(); err != nil {
			err = fmt.Errorf("%s: %w: %s", Program, err, bytes.TrimSpace(stderr.Bytes()))
		}
	}
	if err != nil {
		_ = os.Remove(name)
		return fmt.Errorf("make file system: %w", err)
	}
	return nil
}

// empty removes what Program leaves in the file system in a file.
func empty(ctx context.Context, name string) error {
	root, err := mountEmpty(name)
	if err != nil {
		return err
	}
	if err := root.Close(); err != nil {
		return err
	}
	return Released(ctx, name)
}

// mountEmpty mounts a new file system without the directory that Program leaves there for
// its repair.
func mountEmpty(name string) (*os.File, error) {
	root, err := Mount(name, false)
	if err != nil {
		return nil, err
	}
	if err := unix.Unlinkat(int(root.Fd()), "lost+found", unix.AT_REMOVEDIR); err != nil {
		root.Close()
		return nil, fmt.Errorf("empty file system: %w", err)
	}
	return root, nil
}

// Released waits until nothing has the file system in the file mounted, so that the file
// has all that was written there.
func Released(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	for Attached(name) {
		if !loop.Sleep(ctx, releasePoll) {
			return fmt.Errorf("unmount %s: %w", name, ctx.Err())
		}
	}
	return nil
}

// Mount returns a detached mount of the file system in the file: a descriptor of
// its root directory.
func Mount(name string, readOnly bool) (*os.File, error) {
	device, err := attach(name, readOnly)
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w", name, err)
	}
	defer device.Close() // The mount holds the device.
	root, err := mount(device.Name(), readOnly)
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w", name, err)
	}
	return root, nil
}

// attach returns a loop device of the file. The kernel detaches it when nothing
// uses it any more.
func attach(name string, readOnly bool) (*os.File, error) {
	access := os.O_RDWR
	config := unix.LoopConfig{Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
	if readOnly {
		access = os.O_RDONLY
		config.Info.Flags |= unix.LO_FLAGS_READ_ONLY
	}
	file, err := os.OpenFile(name, access, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close() // The device holds it.
	config.Fd = uint32(file.Fd())
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for range loopTries {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			return device, nil
		}
		device.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attach %s: %w", device.Name(), err)
		}
	}
	return nil, fmt.Errorf("find a free loop device: %d were taken by others", loopTries)
}

// mount returns a detached mount of the device.
func mount(device string, readOnly bool) (*os.File, error) {
	config, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(config)
	err = unix.FsconfigSetString(config, "source", device)
	attributes := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOATIME
	if readOnly {
		err = errors.Join(err, unix.FsconfigSetFlag(config, "ro"))
		attributes |= unix.MOUNT_ATTR_RDONLY
	} else {
		// Blocks that nobody reads need not be zeroed, and no thread of the kernel needs to read
		// ahead what most executions never use. The machine gets removed blocks back. Nothing here
		// has to outlive a power failure before its file is synced, so the disk need not be flushed.
		for _, flag := range []string{"noinit_itable", "no_prefetch_block_bitmaps", "discard", "nobarrier"} {
			err = errors.Join(err, unix.FsconfigSetFlag(config, flag))
		}
	}
	if err == nil {
		err = unix.FsconfigCreate(config)
	}
	if err != nil {
		return nil, err
	}
	root, err := unix.Fsmount(config, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(root), device), nil
}

// Attached reports whether a loop device has the file, which is the case while it is
// mounted.
func Attached(name string) bool {
	if resolved, err := filepath.EvalSymlinks(name); err == nil {
		name = resolved // As the kernel has it.
	}
	devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		panic(err) // The pattern is a constant.
	}
	for _, device := range devices {
		if text, err := os.ReadFile(device); err == nil && strings.TrimSpace(string(text)) == name {
			return true
		}
	}
	return false
}
