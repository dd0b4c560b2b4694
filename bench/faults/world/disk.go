package world

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// imageBytes is the size of a node's disk. The image is sparse.
const imageBytes = 384 << 20

// From the kernel's include/uapi/linux/ext4.h: shut the file system down, so
// that it accepts no change and writes none, not even its journal.
const (
	ioctlExt4Shutdown   = 0x8004587d
	ext4GoingNoLogFlush = 2
)

// makeDisk creates the node's file system and mounts it as its data directory.
func (n *Node) makeDisk(ctx context.Context) error {
	if err := os.MkdirAll(n.data(), 0o700); err != nil {
		return err
	}
	image, err := os.OpenFile(n.image(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(image.Truncate(imageBytes), image.Close()); err != nil {
		return err
	}
	if err := command(ctx, "", "mkfs.ext4", "-q", "-F", "-m", "0", n.image()); err != nil {
		return err
	}
	return n.mount(ctx)
}

func (n *Node) image() string { return filepath.Join(n.dir, "disk.img") }

// mount mounts the node's disk. The kernel replays the journal of the file
// system as after a power cut.
func (n *Node) mount(ctx context.Context) error {
	return command(ctx, "", "mount", "-o", "loop", n.image(), n.data())
}

// unmount unmounts the node's disk. No process may have a file open there. It
// returns once the kernel has released the file system: an earlier mount would
// show the old one again.
func (n *Node) unmount(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	var err error
	waited := poll(ctx, "the disk to be free", func() bool {
		err = command(ctx, "", "umount", n.data())
		return err == nil
	})
	if waited != nil {
		return errors.Join(waited, err)
	}
	err = poll(ctx, "the file system of "+n.Name+" to be let go", func() bool { return attached(n.image()) == 0 })
	if err != nil {
		err = fmt.Errorf("%w; it is held by %q", err, holders(attached(n.image())))
	}
	return err
}

// holders returns the processes that keep the file system of a device in use,
// with their command lines and the kind of use: a mount of it in their
// namespace, wherever mounted, or an open file.
func holders(device uint64) (found []string) {
	number := fmt.Sprintf(" %d:%d ", unix.Major(device), unix.Minor(device))
	processes, _ := filepath.Glob("/proc/[0-9]*") // The pattern is right.
	for _, process := range processes {
		var how []string
		mounts, _ := os.ReadFile(filepath.Join(process, "mountinfo")) // It may have exited.
		for line := range strings.Lines(string(mounts)) {
			if fields := strings.Fields(line); len(fields) > 4 && strings.Contains(line, number) {
				how = append(how, "mount "+fields[4])
			}
		}
		open, _ := filepath.Glob(filepath.Join(process, "fd", "*"))
		for _, name := range append(open, filepath.Join(process, "cwd"), filepath.Join(process, "root")) {
			var stat unix.Stat_t
			if unix.Stat(name, &stat) == nil && stat.Dev == device {
				target, _ := os.Readlink(name)
				how = append(how, filepath.Base(name)+" "+target)
			}
		}
		if len(how) > 0 {
			command, _ := os.ReadFile(filepath.Join(process, "cmdline"))
			found = append(found, fmt.Sprintf("%s %s: %s", filepath.Base(process),
				strings.TrimSpace(strings.ReplaceAll(string(command), "\x00", " ")), strings.Join(how, ", ")))
		}
	}
	return found
}

// attached returns the loop device of the image, 0 for none.
func attached(image string) (device uint64) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // The pattern is right.
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(data)) != image {
			continue
		}
		var major, minor uint32
		text, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(file)), "dev"))
		if _, scanErr := fmt.Sscanf(string(text), "%d:%d", &major, &minor); err != nil || scanErr != nil {
			continue // It was released meanwhile.
		}
		return unix.Mkdev(major, minor)
	}
	return 0
}

// cutDisk discards everything that was not synced to the node's disk.
func (n *Node) cutDisk() error {
	dir, err := os.Open(n.data())
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), ioctlExt4Shutdown, ext4GoingNoLogFlush); err != nil {
		return fmt.Errorf("shut down file system %s: %w", n.data(), err)
	}
	return nil
}

// Flush has the kernel write out dirty data, which it otherwise does within
// half a minute. Faults must not lose data from before them.
func (w *World) Flush() error {
	for _, n := range w.machines() {
		dir, err := os.Open(n.data())
		if err != nil {
			return err
		}
		if err := errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close()); err != nil {
			return fmt.Errorf("sync file system %s: %w", n.data(), err)
		}
	}
	return nil
}

// unmountAll unmounts every disk below dir.
func unmountAll(ctx context.Context, dir string) error {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return err
	}
	defer f.Close()
	var errs []error
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 1 && strings.HasPrefix(fields[1], dir+string(filepath.Separator)) {
			err := command(ctx, "", "umount", "-l", fields[1])
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, lines.Err())...)
}
