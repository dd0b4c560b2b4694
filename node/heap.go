package node

import (
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// heapBytes is how much of the heap may be in huge pages: what a node takes that has a small
// state and is busy.
const heapBytes = 128 << 20

// heapArea is the part of the address space where the Go runtime places the first objects
// of its heap. A kernel that leaves huge pages to those who ask for them maps the heap of a
// node that gets work 4 KiB at a time, which takes a tenth of the processor time of its first
// thousands of submits. See madvise(2), MADV_HUGEPAGE.
type heapArea struct {
	start uintptr // A huge page begins there; 0 without an area.
	huge  bool
}

// reserveHeap makes the area: the runtime maps a large object in one piece, and uses its
// addresses again once it is gone. While little of the heap has been used, as when a process
// starts, the runtime does not write to the object, so it takes no memory.
func reserveHeap() *heapArea {
	const page = 2 << 20
	start := addressOf(make([]byte, heapBytes+page))
	debug.FreeOSMemory() // Otherwise the runtime counts the object as memory in use.
	return &heapArea{start: (start + page - 1) &^ (page - 1)}
}

// addressOf returns where an object lies, without keeping it alive.
func addressOf(object []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(object))) }

// useHuge sets whether pages that the heap touches from now on are huge. A node at rest does
// without, as a huge page takes 2 MiB however little of it is in use: up to heapBytes in all
// that the runtime does not count. It reports false where the kernel has none.
func (h *heapArea) useHuge(huge bool) bool {
	if h.start == 0 || h.huge == huge {
		return h.start != 0
	}
	advice := unix.MADV_NOHUGEPAGE
	if huge {
		advice = unix.MADV_HUGEPAGE
	}
	if _, _, refused := unix.Syscall(unix.SYS_MADVISE, h.start, heapBytes, uintptr(advice)); refused != 0 {
		h.start = 0
		return false
	}
	h.huge = huge
	return true
}
