package storage

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Writes past the page cache.
const (
	directLeast = 512 << 10 // Bytes of a blob that is written past the cache.
	directPiece = 1 << 20   // Bytes that are written at once.
	directAlign = 4 << 10   // Alignment of memory, offsets and lengths.
)

// directBuffers has aligned buffers of directPiece bytes.
var directBuffers = sync.Pool{New: func() any { //nolint:gochecknoglobals // Memory that all stores share.
	raw := make([]byte, directPiece+directAlign)
	skip := -int(uintptr(unsafe.Pointer(&raw[0]))) & (directAlign - 1)
	buf := raw[skip : skip+directPiece : skip+directPiece]
	return &buf
}}

// writeFile writes the data of a large blob past the page cache, where the file system
// can: nobody reads it soon, and copying it to fresh pages takes longer than anything
// else that a put does. It writes other data as usual.
func writeFile(f *os.File, data []byte) error {
	if len(data) < directLeast || !setDirect(f, true) {
		_, err := f.Write(data)
		return err
	}
	err := writeDirect(f, data)
	if errors.Is(err, syscall.EINVAL) && setDirect(f, false) { // The device aligns otherwise.
		_, err = f.WriteAt(data, 0)
	}
	return err
}

// setDirect turns writing past the cache on or off, and reports whether it could.
func setDirect(f *os.File, on bool) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return false
	}
	if flags &^= unix.O_DIRECT; on {
		flags |= unix.O_DIRECT
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags)
	return err == nil
}

// writeDirect writes data in aligned pieces: as it is if its memory is aligned, as that of
// large slices is, otherwise by way of a buffer. The last piece is longer than what is left
// of data, and the file is cut.
func writeDirect(f *os.File, data []byte) error {
	at := 0
	if uintptr(unsafe.Pointer(unsafe.SliceData(data)))%directAlign == 0 {
		at = len(data) &^ (directAlign - 1)
		if _, err := f.WriteAt(data[:at], 0); err != nil {
			return err
		}
	}
	buf := directBuffers.Get().(*[]byte)
	defer directBuffers.Put(buf)
	for at < len(data) {
		n := copy(*buf, data[at:])
		padded := (n + directAlign - 1) &^ (directAlign - 1)
		clear((*buf)[n:padded])
		if _, err := f.WriteAt((*buf)[:padded], int64(at)); err != nil {
			return err
		}
		at += n
	}
	return f.Truncate(int64(len(data)))
}
