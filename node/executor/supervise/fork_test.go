package supervise_test

import (
	"os"
	"syscall"
	"testing"

	"berth/compute"
	"berth/node/executor/sandbox"
)

// TestSandboxHasNoMountsOfTheMachine hands a supervisor a mount namespace in which the program of first
// processes cannot be found: they start there, and not among the mounts of the machine.
func TestSandboxHasNoMountsOfTheMachine(t *testing.T) {
	a := prepare(t, "exit 3", nil)
	opened := make(chan error)
	sandbox.OnOwnThread(func() {
		err := syscall.Unshare(syscall.CLONE_FS | syscall.CLONE_NEWNS)
		if err == nil {
			err = syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
		}
		if err == nil {
			a.mounts, err = os.Open("/proc/thread-self/ns/mnt")
		}
		if err == nil {
			err = syscall.Mount("tmpfs", "/proc", "tmpfs", 0, "")
		}
		opened <- err
	})
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	defer a.mounts.Close()
	a.spawn(nil)
	a.check(compute.StatusSystemFailure, compute.ReasonStartFailed, "no such file or directory", 0)
}
