package disk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"
	"golang.org/x/sys/unix"
)

const (
	scrubPiece = 256 << 10 // Read size for snapshots.
	scrubTries = 3         // Attempts at a snapshot that seems damaged while others are removed.
	scrubHead  = 4 << 10   // The cost of reading an entry in addition to its data.
)

// Throttle waits until a number of bytes may be read. Its error ends a scrub.
type Throttle func(bytes int) error

// Scrub verifies the checksums of all entries and values while the store is in
// use, and returns the number of entries it read. Damage ends the process, as
// with any other read.
func (s *Log) Scrub(throttle Throttle) (entries int, err error) {
	first, err := s.FirstIndex()
	if err != nil {
		return 0, err
	}
	var entry raft.Log
	for index := first; ; index++ {
		if first, err = s.FirstIndex(); err != nil {
			return entries, err
		}
		last, err := s.LastIndex()
		if err != nil {
			return entries, err
		}
		if index = max(index, first); index > last || last == 0 {
			break
		}
		if err := s.scrubEntry(index, &entry); err != nil {
			return entries, err
		}
		entries++
		if err := throttle(scrubHead + len(entry.Data)); err != nil {
			return entries, err
		}
	}
	for _, key := range keys() {
		if _, err := s.Get([]byte(key)); errors.Is(err, ErrCorrupt) {
			return entries, err
		}
	}
	return entries, nil
}

// scrubEntry reads one entry. A missing entry is damage, unless the log no
// longer includes its index.
func (s *Log) scrubEntry(index uint64, entry *raft.Log) error {
	err := s.GetLog(index, entry)
	if !errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	*entry = raft.Log{}
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil || index < first || index > last {
		return err
	}
	if err = s.GetLog(index, entry); errors.Is(err, raft.ErrLogNotFound) { // A leader may have overwritten it meanwhile.
		err = fmt.Errorf("%w: no entry %d between %d and %d", ErrCorrupt, index, first, last)
		s.fatal(err)
	}
	return err
}

// Scrub verifies the checksums of all snapshots. It returns the ids of the
// damaged ones, and the fault of the first.
func (s *Snapshots) Scrub(throttle Throttle) (damaged []string, reason, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("list snapshots: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasSuffix(e.Name(), snapshotUnfinished) {
			continue
		}
		wrong, err := s.judge(e.Name(), throttle)
		if err != nil {
			return damaged, reason, err
		}
		if wrong == nil {
			continue
		}
		damaged = append(damaged, e.Name())
		if reason == nil {
			reason = fmt.Errorf("%w: snapshot %s: %w", ErrCorrupt, e.Name(), wrong)
		}
	}
	return damaged, reason, nil
}

// judge returns the fault of a snapshot, nil if it is intact or was removed
// because newer ones replaced it. A missing file means nothing while snapshots
// are removed, so judge then reads again.
func (s *Snapshots) judge(id string, throttle Throttle) (wrong, err error) {
	for range scrubTries {
		before := s.removals.Load()
		if wrong, err = s.scrubOne(id, throttle); wrong == nil || err != nil {
			return nil, err
		}
		if _, err := os.Stat(filepath.Join(s.dir, id)); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if s.removing.Load() == 0 && s.removals.Load() == before {
			return wrong, nil
		}
		if err := throttle(scrubPiece); err != nil {
			return nil, err
		}
	}
	return nil, nil // The next scrub checks it.
}

// removal must be called before snapshots may be removed, and its result
// afterwards.
func (s *Snapshots) removal() (end func()) {
	s.removing.Add(1)
	return func() {
		s.removals.Add(1)
		s.removing.Add(-1)
	}
}

// scrubOne reads one snapshot and returns its fault. err is the error of throttle, or an
// error that is not the snapshot's fault.
func (s *Snapshots) scrubOne(id string, throttle Throttle) (wrong, err error) {
	text, err := os.ReadFile(filepath.Join(s.dir, id, snapshotMeta))
	if err != nil {
		return s.unread(err)
	}
	var meta struct {
		raft.SnapshotMeta

		CRC []byte
	}
	if err := json.Unmarshal(text, &meta); err != nil {
		return err, nil
	}
	switch err := s.checkMeta(&meta.SnapshotMeta); {
	case errors.Is(err, ErrCorrupt), errors.Is(err, fs.ErrNotExist):
		return err, nil
	case err != nil:
		return nil, err
	}
	f, err := os.Open(filepath.Join(s.dir, id, snapshotContent))
	if err != nil {
		return s.unread(err)
	}
	defer f.Close()
	// Reading cached pages would not check the disk.
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	sum := crc64.New(crc64.MakeTable(crc64.ECMA))
	for {
		n, err := io.CopyN(sum, f, scrubPiece)
		if throttled := throttle(int(n)); throttled != nil {
			return nil, throttled
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return s.unread(err)
		}
	}
	if !bytes.Equal(sum.Sum(nil), meta.CRC) {
		return errors.New("its content has a wrong checksum"), nil
	}
	return nil, nil
}

// unread classifies the error of reading a snapshot's file. A missing file is a
// fault of the snapshot. A disk error ends the process. Any other error, as too
// many open files, may be transient.
func (s *Snapshots) unread(reason error) (wrong, err error) {
	if errors.Is(reason, fs.ErrNotExist) {
		return reason, nil
	}
	return nil, s.failed("scrub", reason)
}

// SetAside moves a snapshot to a directory. It returns no error if newer
// snapshots have replaced the snapshot.
func (s *Snapshots) SetAside(id, to string) error {
	defer s.removal()()
	from := filepath.Join(s.dir, id)
	err := os.Rename(from, filepath.Join(to, id))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, gone := os.Stat(from); errors.Is(gone, fs.ErrNotExist) {
		return nil
	}
	return err
}
