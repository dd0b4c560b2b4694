package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

const (
	// newRoot is the mount point of the new root: a directory that every machine has.
	newRoot = "/tmp"
	// scratch is the mount point of the writable tmpfs while the root is built.
	scratch     = newRoot + "/.scratch"
	rootOptions = "size=16m,nr_inodes=16384,mode=0755"

	sharedMemory = "/dev/shm"

	// maxTerminals is the number of pseudo-terminals. The kernel has 4,096 for the
	// whole machine, and charges their buffers, 128 KiB each, to nobody.
	maxTerminals = 64
)

// scratchDirs returns the writable directories, in the order of their creation.
func scratchDirs() []string { return []string{WorkDir, "/tmp", sharedMemory} }

// maskedPaths returns the paths in /proc that are masked. Paths that the kernel lacks
// are skipped.
func maskedPaths() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kmsg",
		"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
		"/proc/scsi", "/proc/sysrq-trigger", "/proc/mtrr", "/proc/vmallocinfo",
	}
}

// readOnlyPaths returns the paths in /proc that are mounted read-only, if they exist.
func readOnlyPaths() []string { return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"} }

// buildRoot makes the root that the spec describes and pivots into it.
func buildRoot(spec *Spec) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("tmpfs", newRoot, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, rootOptions); err != nil {
		return fmt.Errorf("mount root: %w", err)
	}
	// Before the binds, because their targets may be in /tmp.
	if err := mountScratch(spec); err != nil {
		return err
	}
	for i, bind := range spec.Binds {
		if err := attach(fdBinds+i, bind); err != nil {
			return fmt.Errorf("mount %s: %w", bind.Target, err)
		}
	}
	if err := mountProc(); err != nil {
		return err
	}
	if err := mountPts(); err != nil {
		return err
	}
	if err := writeFiles(spec); err != nil {
		return err
	}
	return enterRoot(syscall.MS_NOSUID | syscall.MS_NODEV)
}

// attach mounts one detached mount at its target.
func attach(fd int, bind Bind) error {
	target := newRoot + bind.Target
	if err := makeMountPoint(target, bind.Dir); err != nil {
		return err
	}
	return moveMount(fd, target)
}

// makeMountPoint makes a mount point: a directory or an empty file.
func makeMountPoint(target string, dir bool) error {
	if dir {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(path.Dir(target), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// mountProc mounts the /proc of the program's pid namespace. It hides the
// processes of other users, which is the first process.
func mountProc() error {
	target := newRoot + "/proc"
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	flags := uintptr(syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC)
	if err := syscall.Mount("proc", target, "proc", flags, "hidepid=2"); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	for _, name := range maskedPaths() {
		if err := maskPath(newRoot + name); err != nil {
			return fmt.Errorf("mask %s: %w", name, err)
		}
	}
	for _, name := range readOnlyPaths() {
		if err := remountReadOnly(newRoot+name, flags); err != nil {
			return fmt.Errorf("remount %s read-only: %w", name, err)
		}
	}
	return nil
}

// maskPath masks a directory with an empty one and a file with /dev/null.
func maskPath(name string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		flags := uintptr(syscall.MS_RDONLY | syscall.MS_NOSUID | syscall.MS_NODEV)
		return syscall.Mount("tmpfs", name, "tmpfs", flags, "size=0,nr_inodes=2")
	}
	return syscall.Mount("/dev/null", name, "", syscall.MS_BIND, "")
}

func remountReadOnly(name string, flags uintptr) error {
	err := syscall.Mount(name, name, "", syscall.MS_BIND|syscall.MS_REC, "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syscall.Mount("", name, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY|flags, "")
}

func mountPts() error {
	target := newRoot + "/dev/pts"
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("mount devpts: %w", err)
	}
	options := fmt.Sprintf("newinstance,ptmxmode=0666,mode=0620,max=%d", maxTerminals)
	if err := syscall.Mount("devpts", target, "devpts", syscall.MS_NOSUID|syscall.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount devpts: %w", err)
	}
	return nil
}

// mountScratch makes the writable directories. They share one file system of one
// size, in memory or on disk; /dev/shm is in memory always.
func mountScratch(spec *Spec) error {
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return fmt.Errorf("mount scratch: %w", err)
	}
	dirs := scratchDirs()
	if spec.ScratchDisk {
		if err := moveMount(fdBinds+len(spec.Binds), scratch); err != nil {
			return fmt.Errorf("mount scratch: %w", err)
		}
		if err := mountMemory(newRoot+sharedMemory, spec.ScratchMiB, "1777"); err != nil {
			return err
		}
		dirs = slices.DeleteFunc(dirs, func(dir string) bool { return dir == sharedMemory })
	} else if err := mountMemory(scratch, spec.ScratchMiB, "0700"); err != nil {
		return err
	}
	for _, dir := range dirs {
		from, to := scratch+"/"+path.Base(dir), newRoot+dir
		err := os.Mkdir(from, 0o700)
		if err == nil {
			err = os.MkdirAll(to, 0o755)
		}
		if err == nil && dir == WorkDir {
			err = os.Chown(from, UserID, UserID)
		}
		if err == nil {
			err = syscall.Chmod(from, 0o1777)
		}
		if err == nil {
			err = syscall.Mount(from, to, "", syscall.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	if err := syscall.Unmount(scratch, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("detach scratch: %w", err)
	}
	return os.Remove(scratch)
}

// mountMemory mounts a new tmpfs.
func mountMemory(target string, sizeMiB int64, mode string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("mount scratch: %w", err)
	}
	options := fmt.Sprintf("size=%dm,nr_inodes=%d,mode=%s", sizeMiB, max(sizeMiB*256, 4096), mode)
	flags := uintptr(syscall.MS_NOSUID | syscall.MS_NODEV)
	if err := syscall.Mount("tmpfs", target, "tmpfs", flags, options); err != nil {
		return fmt.Errorf("mount scratch: %w", err)
	}
	return nil
}

func writeFiles(spec *Spec) error {
	for _, file := range spec.Files {
		name := newRoot + file.Path
		err := os.MkdirAll(path.Dir(name), 0o755)
		if err == nil {
			err = os.WriteFile(name, []byte(file.Text), file.Mode)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", file.Path, err)
		}
	}
	for _, link := range spec.Links {
		name := newRoot + link.Path
		err := os.MkdirAll(path.Dir(name), 0o755)
		if err == nil {
			err = os.Symlink(link.Target, name)
		}
		if err != nil {
			return fmt.Errorf("link %s: %w", link.Path, err)
		}
	}
	return nil
}

// enterRoot pivots to the new root and makes it read-only, with the flags.
func enterRoot(flags uintptr) error {
	if err := os.Chdir(newRoot); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	// The old root ends up stacked on the new one, and is then unmounted.
	if err := syscall.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	if err := syscall.Unmount(".", syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("leave old root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	flags |= syscall.MS_REMOUNT | syscall.MS_BIND | syscall.MS_RDONLY
	if err := syscall.Mount("", "/", "", flags, ""); err != nil {
		return fmt.Errorf("make root read-only: %w", err)
	}
	return nil
}

// Contains reports whether name is dir or lies beneath it.
func Contains(dir, name string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}
