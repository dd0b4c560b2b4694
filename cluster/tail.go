package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
)

// tailFile holds the tail mark, beside raft.db.
const tailFile = "tail"

// tailMark remembers outside of raft.db which entry was the last. Checksums
// cannot tell that an entry is gone altogether, and a log that lost its end
// would let raft acknowledge twice what it acknowledged before.
//
// It is written after the entries are durable and is not synced itself, so it
// is never ahead of them: after a power cut it may lag, which only weakens
// the check. Before entries are removed it is lowered durably.
type tailMark struct {
	file *os.File
}

func openTailMark(path string) (*tailMark, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return nil, fmt.Errorf("open tail mark: %w", err)
	}
	return &tailMark{file: f}, nil
}

// check reports an error when the log, which ends at last, ended later once.
// A mark that is absent or torn says nothing.
func (t *tailMark) check(last uint64) error {
	var b [12]byte
	if n, _ := t.file.ReadAt(b[:], 0); n < len(b) {
		return nil
	}
	if crc32.ChecksumIEEE(b[:8]) != binary.BigEndian.Uint32(b[8:]) {
		return nil
	}
	if mark := binary.BigEndian.Uint64(b[:8]); mark > last {
		return fmt.Errorf("%w: it ends at entry %d, but entry %d was written", ErrCorrupt, last, mark)
	}
	return nil
}

// set moves the mark to last.
func (t *tailMark) set(last uint64) error {
	var b [12]byte
	binary.BigEndian.PutUint64(b[:8], last)
	binary.BigEndian.PutUint32(b[8:], crc32.ChecksumIEEE(b[:8]))
	if _, err := t.file.WriteAt(b[:], 0); err != nil {
		return fmt.Errorf("write tail mark: %w", err)
	}
	return nil
}

// lower moves the mark back to last, durably.
func (t *tailMark) lower(last uint64) error {
	if err := t.set(last); err != nil {
		return err
	}
	if err := t.file.Sync(); err != nil {
		return fmt.Errorf("sync tail mark: %w", err)
	}
	return nil
}

func (t *tailMark) close() error {
	if err := t.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("close tail mark: %w", err)
	}
	return nil
}
