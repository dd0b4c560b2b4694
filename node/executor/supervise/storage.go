package supervise

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"berth/compute"
)

// The lines between a mount of a bucket and who started it, or supervises its code.
const (
	StorageReady  = "ready"  // It is mounted.
	StorageCut    = "cut"    // The code is killed and waits for the mount: end that.
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

// cutStorage ends what code waits for in the mount, so that it can end. It reports
// whether there is one.
func (s *supervisor) cutStorage() bool {
	if s.storage == nil {
		return false
	}
	_, err := fmt.Fprintln(s.storage, StorageCut)
	return err == nil
}

// finishStorage waits until the bucket has what the code wrote.
func (s *supervisor) finishStorage() {
	if s.storage == nil {
		return
	}
	s.detachStorage()
	answer := make(chan string, 1)
	go func() { answer <- askToFinish(s.storage) }()
	why := s.awaitStorage(answer)
	s.storage.Close() // Which ends the process of the mount.
	if why != "" && s.log != nil {
		s.note("storage: " + why)
	}
}

// awaitStorage waits for the answer of the mount, and returns the files that are not
// stored. It waits less after an abort.
func (s *supervisor) awaitStorage(answer <-chan string) string {
	patience := time.NewTimer(storageTime)
	defer patience.Stop()
	if s.cause == causeAborted {
		patience.Reset(abortTime)
	}
	for {
		select {
		case why := <-answer:
			return why
		case <-patience.C:
			return "what was written last may not be stored: it took too long"
		case c := <-s.commands:
			if c.stop == compute.StopHard {
				patience.Reset(abortTime)
			}
		}
	}
}

// askToFinish has a mount store the remaining files, and returns those that could
// not be stored.
func askToFinish(mount *os.File) string {
	_, err := fmt.Fprintln(mount, StorageFinish)
	var line string
	if err == nil {
		line, err = bufio.NewReader(mount).ReadString('\n')
	}
	if err != nil {
		return "what was written last may not be stored: its process ended early"
	}
	why, _ := strings.CutPrefix(strings.TrimSpace(line), StorageDone)
	return strings.TrimSpace(why)
}
