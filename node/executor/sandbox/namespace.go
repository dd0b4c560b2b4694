package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"syscall"
)

// bareOptions are those of the root of a bare namespace, in which there are mount points only.
const bareOptions = "size=64k,nr_inodes=16,mode=0755"

// bareBinds returns what a first process needs of the machine before it has its own root: its program,
// its id and its user namespace in /proc, what masks files, and a place for its root.
func bareBinds() []string { return []string{"/proc", os.DevNull} }

// NewBareMounts makes a mount namespace with next to nothing in it. A process that is cloned with a mount
// namespace of its own gets a copy of each mount of its parent's, and on machines with thousands of them
// most of a start would be these copies and their end. The file is the namespace.
func NewBareMounts() (*os.File, error) {
	type result struct {
		file *os.File
		err  error
	}
	made := make(chan result)
	OnOwnThread(func() {
		file, err := makeBare()
		made <- result{file, err}
	})
	r := <-made
	if r.err != nil {
		return nil, fmt.Errorf("make mount namespace: %w", r.err)
	}
	return r.file, nil
}

// OnOwnThread calls a function beside its caller, on a thread that ends with it. That is never the main thread,
// by whose namespaces others know the process.
func OnOwnThread(call func()) {
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() != syscall.Getpid() {
			call()
			return
		}
		defer runtime.UnlockOSThread()
		locked := make(chan struct{})
		go func() {
			runtime.LockOSThread() // Another one, as this one is taken.
			close(locked)
			call()
		}()
		<-locked
	}()
}

// makeBare has the calling thread alone leave for a new mount namespace.
func makeBare() (*os.File, error) {
	var binds []int
	defer func() { closeAll(binds) }()
	for _, source := range bareBinds() {
		fd, err := openTree(source, 0)
		if err != nil {
			return nil, fmt.Errorf("open mount of %s: %w", source, err)
		}
		binds = append(binds, fd)
	}
	if err := unshare(syscall.CLONE_FS | syscall.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("unshare: %w", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	flags := uintptr(syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC)
	if err := syscall.Mount("tmpfs", newRoot, "tmpfs", flags, bareOptions); err != nil {
		return nil, fmt.Errorf("mount root: %w", err)
	}
	for _, dir := range []string{newRoot, path.Dir(os.DevNull)} {
		err := os.Mkdir(newRoot+dir, 0o755)
		if err = errors.Join(err, os.Chmod(newRoot+dir, 0o755)); err != nil { // Whatever this process masks.
			return nil, err
		}
	}
	for i, source := range bareBinds() {
		if err := attach(binds[i], Bind{Target: source, Dir: path.Dir(source) == "/"}); err != nil {
			return nil, fmt.Errorf("mount %s: %w", source, err)
		}
	}
	if err := enterRoot(flags); err != nil {
		return nil, err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	return os.Open(ownMounts)
}

// ownMounts is the mount namespace of the thread that opens it.
const ownMounts = "/proc/thread-self/ns/mnt"

// Mounts lets the thread that opened it start first processes in a bare mount namespace. Between these
// starts the thread sees the mounts of the machine.
type Mounts struct {
	bare, own, root int // The two namespaces, and the root directory of the thread.
}

// OpenMounts prepares the calling thread, which must be locked for good. It has its own working directory
// from here on. Mounts is nil if the descriptor is not a mount namespace, as where a node could not make it.
func OpenMounts(bare int) (*Mounts, error) {
	if kindOf(bare) != syscall.CLONE_NEWNS {
		return nil, nil
	}
	if err := unshare(syscall.CLONE_FS); err != nil {
		return nil, fmt.Errorf("open mount namespace: %w", err)
	}
	m := &Mounts{bare: bare}
	var err error
	if m.own, err = syscall.Open(ownMounts, syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open mount namespace: %w", err)
	}
	if m.root, err = syscall.Open("/", oPath|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open root directory: %w", err)
	}
	return m, nil
}

// kindOf returns the kind of a namespace by its flag of clone, 0 if the descriptor is none.
func kindOf(fd int) uintptr {
	kind, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), nsGetNsType, 0)
	if errno != 0 {
		return 0
	}
	return kind
}

// inside calls fork while the calling thread is in the bare namespace.
func (m *Mounts) inside(fork func() error) error {
	if m == nil {
		return fork()
	}
	if err := EnterNamespace(m.bare, syscall.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter mount namespace: %w", err)
	}
	err := fork()
	back := EnterNamespace(m.own, syscall.CLONE_NEWNS)
	if back == nil { // Its root may be another than that of the namespace.
		back = errors.Join(syscall.Fchdir(m.root), syscall.Chroot("."))
	}
	if back != nil {
		return errors.Join(err, fmt.Errorf("return to the mounts of the machine: %w", back))
	}
	return err
}

// EnterNamespace moves the calling thread alone to a namespace of the kind.
func EnterNamespace(fd int, kind uintptr) error {
	if _, _, errno := syscall.RawSyscall(sysSetns, uintptr(fd), kind, 0); errno != 0 {
		return errno
	}
	return nil
}

// unshare changes the calling thread alone.
func unshare(flags uintptr) error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_UNSHARE, flags, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
