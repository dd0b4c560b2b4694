package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"sync"

	"berth/fault"
)

// tailFile holds the tail mark, beside raft.db.
const tailFile = "tail"

// markSize is the length of the mark: last entry, last value, checksum.
const markSize = 8 + 8 + crc32.Size

// tailMark records, outside raft.db, the last entry and the sequence number of
// the last value that were written to it. Checksums cannot detect missing data.
// A damaged meta page, for one, makes bolt silently go back by a transaction. A
// replica that forgot an entry or a vote could acknowledge or vote twice.
//
// The mark is written after the entries are durable and is not synced itself,
// so it is never ahead of them. After a power failure it may lag, which only
// weakens the check. Before entries are removed it is lowered durably.
type tailMark struct {
	file *os.File

	mu   sync.Mutex
	last uint64
	seq  uint64
}

func openTailMark(path string, readOnly bool) (*tailMark, error) {
	flags := os.O_CREATE | os.O_RDWR
	if readOnly {
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(path, flags, fileMode)
	if readOnly && errors.Is(err, fs.ErrNotExist) {
		return new(tailMark), nil
	}
	if err != nil {
		return nil, fmt.Errorf("open tail mark: %w", err)
	}
	t := &tailMark{file: f}
	t.read()
	return t, nil
}

// read loads the mark from the file. A missing or incomplete mark is ignored.
func (t *tailMark) read() {
	var b [markSize]byte
	if n, _ := t.file.ReadAt(b[:], 0); n < len(b) {
		return
	}
	if crc32.ChecksumIEEE(b[:16]) != binary.BigEndian.Uint32(b[16:]) {
		return
	}
	t.last, t.seq = binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])
}

// check returns an error if raft.db, which ends at entry last, once reached
// further.
func (t *tailMark) check(last uint64) error {
	if t.last > last {
		return fmt.Errorf("%w: it ends at entry %d, but entry %d was written", ErrCorrupt, last, t.last)
	}
	return nil
}

// checkSeq is check for values.
func (t *tailMark) checkSeq(seq uint64) error {
	if t.seq > seq {
		return fmt.Errorf("%w: a term or a vote that was written is gone", ErrCorrupt)
	}
	return nil
}

// set moves the mark.
func (t *tailMark) set(last, seq uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last, t.seq = last, seq
	return t.write()
}

// setLast moves the mark to an entry.
func (t *tailMark) setLast(last uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = last
	return t.write()
}

// setSeq moves the mark to a value.
func (t *tailMark) setSeq(seq uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seq = seq
	return t.write()
}

// lower moves the mark back to an entry, durably.
func (t *tailMark) lower(last uint64) error {
	if err := t.setLast(last); err != nil {
		return err
	}
	if err := t.file.Sync(); err != nil {
		return fmt.Errorf("sync tail mark: %w", err)
	}
	return nil
}

// write writes the mark. The caller holds mu, because both numbers share one
// record. The write goes to the page cache, not to the disk.
func (t *tailMark) write() error {
	var b [markSize]byte
	binary.BigEndian.PutUint64(b[:], t.last)
	binary.BigEndian.PutUint64(b[8:], t.seq)
	binary.BigEndian.PutUint32(b[16:], crc32.ChecksumIEEE(b[:16]))
	err := fault.Error("disk.tail.write")
	if err == nil {
		_, err = t.file.WriteAt(b[:], 0)
	}
	if err != nil {
		return fmt.Errorf("write tail mark: %w", err)
	}
	return nil
}

func (t *tailMark) close() error {
	if t.file == nil { // The file did not exist.
		return nil
	}
	if err := t.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("close tail mark: %w", err)
	}
	return nil
}
