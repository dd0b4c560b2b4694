package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// foreign is how many mounts the machine of TestBareMounts has beside its own.
const foreign = 100

// aside calls a function on a thread that sees the foreign mounts at dir, and then ends with its namespace.
func aside(dir string, call func() error) error {
	done := make(chan error)
	OnOwnThread(func() {
		err := unshare(syscall.CLONE_FS | syscall.CLONE_NEWNS)
		if err == nil {
			err = syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
		}
		for i := 0; i < foreign && err == nil; i++ {
			err = syscall.Mount(dir, dir, "", syscall.MS_BIND, "")
		}
		if err == nil {
			err = call()
		}
		done <- err
	})
	return <-done
}

// listed returns how many mounts a process has that starts as the first one of a sandbox does: copies of those
// that its parent sees.
func listed(from *Mounts) (n int, err error) {
	err = from.inside(func() error {
		if err := unshare(syscall.CLONE_NEWNS); err != nil {
			return err
		}
		mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
		n = strings.Count(string(mounts), "\n")
		return err
	})
	return n, err
}

// TestBareMounts makes namespaces on a machine with many mounts: copies of a bare one have none of them. The
// thread that starts processes has all again afterwards, and its own root directory.
func TestBareMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mount namespaces are made by root")
	}
	dir, root := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o700); err != nil {
		t.Fatal(err)
	}
	var bare *os.File
	if err := aside(dir, func() (err error) {
		bare, err = makeBare()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	for _, own := range []string{"", root} {
		if err := aside(dir, func() error { return startFrom(t, bare, own) }); err != nil {
			t.Error(err)
		}
	}
}

// startFrom counts the mounts of processes that the calling thread starts. It has the root directory, unless
// that is "".
func startFrom(t *testing.T, bare *os.File, root string) error {
	if n, err := listed(nil); err != nil || n <= foreign {
		t.Errorf("without the bare namespace a process has %d mounts, %v", n, err)
	}
	if root != "" {
		err := syscall.Mount("/proc", root+"/proc", "", syscall.MS_BIND, "")
		if err = errors.Join(err, syscall.Chroot(root)); err != nil {
			return err
		}
	}
	from, err := OpenMounts(int(bare.Fd()))
	if err != nil || from == nil {
		return fmt.Errorf("open mounts: %v, %w", from, err)
	}
	for range 2 {
		if n, err := listed(from); err != nil || n > 4 {
			t.Errorf("a process has %d mounts, %v", n, err)
		}
	}
	if root != "" {
		entries, err := os.ReadDir("/")
		if err != nil || len(entries) != 1 || entries[0].Name() != "proc" {
			t.Errorf("the thread returned to another root directory: %v, %v", entries, err)
		}
		return nil
	}
	if n, err := listed(nil); err != nil || n <= foreign {
		t.Errorf("the thread returned to %d mounts, %v", n, err)
	}
	return nil
}

// TestNoMounts opens what is not a mount namespace.
func TestNoMounts(t *testing.T) {
	for _, name := range []string{os.DevNull, "/proc/self/ns/uts"} {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := OpenMounts(int(file.Fd())); m != nil || err != nil {
			t.Errorf("%s: %v, %v", name, m, err)
		}
		file.Close()
	}
}

// TestOnOwnThread starts many functions at once: none has the main thread.
func TestOnOwnThread(t *testing.T) {
	const calls = 64
	threads := make(chan int)
	for range calls {
		OnOwnThread(func() { threads <- syscall.Gettid() })
	}
	for range calls {
		if thread := <-threads; thread == syscall.Getpid() {
			t.Error("a function is called on the main thread")
		}
	}
}
