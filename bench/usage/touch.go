package usage

import (
	"fmt"
	"os"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// TouchMemory makes the kernel use that many bytes of memory, and gives them back. The host of a
// virtual machine provides a page when it is first used, which can take ten times as long as
// to clear it: a tenth of all processor time of servers whose heaps grow. A machine that has less than
// twice as much left is left alone.
func TouchMemory(bytes int) error {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return fmt.Errorf("touch memory: %w", err)
	}
	info, err := fs.Meminfo()
	if err != nil {
		return fmt.Errorf("touch memory: %w", err)
	}
	if info.MemAvailableBytes == nil || *info.MemAvailableBytes < 2*uint64(bytes) {
		return nil
	}
	pages, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("touch memory: %w", err)
	}
	_ = unix.Madvise(pages, unix.MADV_HUGEPAGE) // Small pages do as well.
	for at := 0; at < bytes; at += os.Getpagesize() {
		pages[at] = 1
	}
	if err := unix.Munmap(pages); err != nil {
		return fmt.Errorf("touch memory: %w", err)
	}
	return nil
}
