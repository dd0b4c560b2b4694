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
	scrubPiece = 256 << 10 // Bytes of a snapshot that are read at a time.
	scrubTries = 3         // Of one that seems damaged while others are removed.
	scrubHead  = 4 << 10   // What reading an entry costs beside its data.
)

// Pace waits until so many bytes may be read. Its error ends a scrub.
type Pace func(bytes int) error

// Scrub reads all entries and values against their checksums while the store is
// in use, and returns how many entries it read. What is damaged ends the
// process, as with any other read.
func (s *Log) Scrub(pace Pace) (entries int, err error) {
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
		if err := pace(scrubHead + len(entry.Data)); err != nil {
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

// scrubEntry reads one entry. That it is gone is damage, unless the log does not
// reach there any more.
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
	if err = s.GetLog(index, entry); errors.Is(err, raft.ErrLogNotFound) { // It may have been overruled meanwhile.
		err = fmt.Errorf("%w: no entry %d between %d and %d", ErrCorrupt, index, first, last)
		s.fatal(err)
	}
	return err
}

// Scrub reads all snapshots against their checksums and returns the ids of those
// that are damaged, with what is wrong with the first of them.
func (s *Snapshots) Scrub(pace Pace) (damaged []string, reason, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("list snapshots: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasSuffix(e.Name(), snapshotUnfinished) {
			continue
		}
		wrong, err := s.judge(e.Name(), pace)
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

// judge returns what is wrong with a snapshot, nil for one that is whole, or is
// removed meanwhile because newer ones took its place: what is missing while
// snapshots are removed says nothing, and it is read again then.
func (s *Snapshots) judge(id string, pace Pace) (wrong, err error) {
	for range scrubTries {
		before := s.removals.Load()
		if wrong, err = s.scrubOne(id, pace); wrong == nil || err != nil {
			return nil, err
		}
		if _, err := os.Stat(filepath.Join(s.dir, id)); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if s.removing.Load() == 0 && s.removals.Load() == before {
			return wrong, nil
		}
		if err := pace(scrubPiece); err != nil {
			return nil, err
		}
	}
	return nil, nil // The next scrub judges it.
}

// removal is to be called before snapshots may be removed; what it returns,
// afterwards.
func (s *Snapshots) removal() (end func()) {
	s.removing.Add(1)
	return func() {
		s.removals.Add(1)
		s.removing.Add(-1)
	}
}

// scrubOne reads one snapshot and returns what is wrong with it, and the error
// of pace, or one that says nothing about the snapshot.
func (s *Snapshots) scrubOne(id string, pace Pace) (wrong, err error) {
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
	// What is in memory already says nothing about the disk.
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	sum := crc64.New(crc64.MakeTable(crc64.ECMA))
	for {
		n, err := io.CopyN(sum, f, scrubPiece)
		if paced := pace(int(n)); paced != nil {
			return nil, paced
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

// unread judges why a file of a snapshot was not read. That it is gone is wrong
// with the snapshot; that the disk fails ends the process, and anything else, as
// too many open files, may be otherwise the next time.
func (s *Snapshots) unread(reason error) (wrong, err error) {
	if errors.Is(reason, fs.ErrNotExist) {
		return reason, nil
	}
	return nil, s.failed("scrub", reason)
}

// SetAside moves a snapshot to the directory. It is no error if the snapshot is
// gone, because newer ones took its place.
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
