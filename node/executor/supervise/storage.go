package supervise

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// The lines between a mount of a bucket and who started it, or supervises its code.
const (
	StorageReady  = "ready"  // It is mounted.
	StorageFinish = "finish" // The code has ended: store what is left.
	StorageDone   = "done"   // All is stored, but for what follows.
)

const (
	storageTime = 5 * time.Minute  // To store what is left when the code has ended.
	abortTime   = 10 * time.Second // The same for code that was aborted.
	fuseMagic   = 0x65735546
)

// bindStorage adds the mount of the bucket to the sandbox.
func (s *supervisor) bindStorage() error {
	m := s.spec.Storage
	if m == nil {
		return nil
	}
	s.storage = os.NewFile(FDStorage, "storage")
	var at syscall.Statfs_t
	if err := syscall.Statfs(m.Source, &at); err != nil {
		return fmt.Errorf("mount storage: %w", err)
	}
	if at.Type != fuseMagic {
		return fmt.Errorf("mount storage: it is not mounted any more")
	}
	if s.spec.Container == nil {
		s.spec.Sandbox.Binds = append(s.spec.Sandbox.Binds, *m)
	}
	return nil
}

// detachStorage takes the mount from the machine. The code has a clone.
func (s *supervisor) detachStorage() {
	if s.storage == nil {
		return
	}
	_ = syscall.Unmount(s.spec.Storage.Source, syscall.MNT_DETACH) // Once is enough: it may be gone.
	_ = syscall.Rmdir(s.spec.Storage.Source)
}

// cutStorage ends the mount, so that code that waits for it can end. It reports whether
// there was one.
func (s *supervisor) cutStorage() bool {
	if s.storage == nil {
		return false
	}
	s.storage.Close()
	s.storage = nil
	s.note("storage: what was written last may not be stored: it took too long")
	return true
}

// finishStorage waits until the bucket has what the code wrote.
func (s *supervisor) finishStorage() {
	if s.storage == nil {
		return
	}
	defer s.storage.Close() // Which ends the process of the mount.
	s.detachStorage()
	within := storageTime
	if s.cause == causeAborted {
		within = abortTime
	}
	answer := make(chan string, 1)
	go func() {
		var line string
		_, err := fmt.Fprintln(s.storage, StorageFinish)
		if err == nil {
			line, err = bufio.NewReader(s.storage).ReadString('\n')
		}
		if err != nil {
			line = StorageDone + " its process ended early"
		}
		answer <- line
	}()
	why := "what was written last may not be stored: it took too long"
	select {
	case line := <-answer:
		why, _ = strings.CutPrefix(strings.TrimSpace(line), StorageDone)
	case <-time.After(within):
	}
	if why = strings.TrimSpace(why); why != "" && s.log != nil {
		s.note("storage: " + why)
	}
}
