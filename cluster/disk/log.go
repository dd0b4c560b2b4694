package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"berth/cluster/file"
	"berth/fault"
)

// FileName is the name of the log file in its directory.
const FileName = "raft.db"

const (
	fileMode        = 0o600
	boltLockTimeout = 5 * time.Second
	boltMmapSize    = 256 << 20
	sumSize         = crc32.Size
	deletePiece     = 4096 // Entries removed per transaction.
	seqSize         = 8
)

// Keys of raft in the stable store.
const (
	KeyCurrentTerm  = "CurrentTerm"
	KeyLastVoteTerm = "LastVoteTerm"
	KeyLastVoteCand = "LastVoteCand"
)

// Log is raft.db: the log and the stable store's values. Each has a CRC32C that
// every read checks. raft-boltdb has none: it returns nine of ten flipped bits
// as another entry.
type Log struct {
	bolt  *raftboltdb.BoltStore
	sums  *crc32.Table
	tail  *tailMark
	fatal func(error) // Called on each corrupt read once raft runs.

	space *spaceWaiter
	probe string // Path of the file that Probe writes.

	old superseded // Only set before raft runs.

	setMu sync.Mutex // Held while a value is written; a leaf lock.
	seq   uint64     // Number of the newest value.
}

// Open opens or creates the store in dir and reads all of it once. covered is
// the last index of the newest readable snapshot, 0 without one. An entry is
// superseded if the snapshot covers it and no entry follows it without a gap. A
// crash between the installation of a leader's snapshot and the clearing of the
// log leaves such entries. Reads ignore them, and DropSuperseded removes them.
func Open(dir string, covered uint64, fatal func(error)) (*Log, error) {
	if err := createBolt(filepath.Join(dir, FileName)); err != nil {
		return nil, fmt.Errorf("make raft log: %w", err)
	}
	s, err := open(dir, covered, false)
	if err != nil {
		return nil, err
	}
	if err := s.markTail(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.fatal = fatal
	return s, nil
}

// OpenToRead opens the existing store in dir as Open does, but read-only:
// writes to it fail.
func OpenToRead(dir string, covered uint64) (*Log, error) { return open(dir, covered, true) }

// open opens the store in dir and reads all of it.
func open(dir string, covered uint64, readOnly bool) (s *Log, err error) {
	path := filepath.Join(dir, FileName)
	tail, err := openTailMark(filepath.Join(dir, tailFile), readOnly)
	if err != nil {
		return nil, err
	}
	s = &Log{
		sums: crc32.MakeTable(crc32.Castagnoli), tail: tail, fatal: func(error) {},
		space: new(spaceWaiter), probe: filepath.Join(dir, probeFile),
	}
	var old superseded
	err = guard("open", func() error {
		if err := checkBolt(path); err != nil {
			return err
		}
		if old, err = checkKeys(path, covered); err != nil {
			return err
		}
		if s.bolt, err = openBolt(path, readOnly); err != nil {
			return opening(err)
		}
		return nil
	})
	if err == nil {
		err = s.scrub(old)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// createBolt creates the file under another name first. A power failure during
// bolt's first write would leave a file that it cannot open.
func createBolt(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fresh := path + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	db, err := openBolt(fresh, false)
	if err != nil {
		return err
	}
	if err := errors.Join(db.Sync(), db.Close()); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return file.SyncDir(filepath.Dir(path))
}

func openBolt(path string, readOnly bool) (*raftboltdb.BoltStore, error) {
	noSync := fault.Planted(fault.UnsyncedLog)
	return raftboltdb.New(raftboltdb.Options{Path: path, NoSync: noSync, BoltOptions: &bbolt.Options{
		Timeout:         boltLockTimeout, // Without it Open waits forever for another process.
		NoFreelistSync:  true,
		FreelistType:    bbolt.FreelistMapType, // The default makes appends slower in bursts.
		InitialMmapSize: boltMmapSize,
		ReadOnly:        readOnly,
	}})
}

// checkKeys refuses a stable store with unknown keys: otherwise a flipped bit
// in a key would silently hide its value. It returns the entries that a
// snapshot that ends at covered supersedes. It refuses a log with a gap that
// the snapshot does not explain.
func checkKeys(path string, covered uint64) (old superseded, err error) {
	db, err := bbolt.Open(path, fileMode, &bbolt.Options{ReadOnly: true, Timeout: boltLockTimeout})
	if err != nil {
		return old, opening(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		conf, logs := tx.Bucket([]byte("conf")), tx.Bucket([]byte("logs"))
		if conf == nil || logs == nil {
			return fmt.Errorf("%w: a bucket is missing", ErrCorrupt)
		}
		if old, err = supersededBy(logs, covered); err != nil {
			return err
		}
		return conf.ForEach(func(key, value []byte) error {
			switch {
			case !slices.Contains(keys(), string(key)):
				return fmt.Errorf("%w: unknown key %q", ErrCorrupt, key)
			case value == nil: // It looks like a bucket, so bolt would report it as missing.
				return fmt.Errorf("%w: key %q has no value", ErrCorrupt, key)
			}
			return nil
		})
	})
	return old, err
}

// superseded describes the log entries that a snapshot makes unnecessary.
type superseded struct {
	to    uint64 // The newest of them; 0 for none.
	first uint64 // The oldest remaining entry; 0 for none.
}

// supersededBy returns the entries up to covered that are followed by a gap or
// by nothing.
func supersededBy(logs *bbolt.Bucket, covered uint64) (old superseded, err error) {
	last := uint64(0)
	err = logs.ForEach(func(key, value []byte) error {
		if len(key) != 8 || value == nil {
			return fmt.Errorf("%w: key %x is not an entry", ErrCorrupt, key)
		}
		index := binary.BigEndian.Uint64(key)
		if last > 0 && index != last+1 {
			if index > covered+1 {
				return fmt.Errorf("%w: no entries between %d and %d", ErrCorrupt, last, index)
			}
			old = superseded{to: last, first: index}
		}
		last = index
		return nil
	})
	if last < covered {
		old = superseded{to: last}
	}
	return old, err
}

// scrub reads every value, and every entry except the superseded ones.
func (s *Log) scrub(old superseded) error {
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	if err := s.tail.check(last); err != nil {
		return err
	}
	s.old = old
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	if last, err = s.LastIndex(); err != nil {
		return err
	}
	var entry raft.Log
	for i := first; i <= last && last > 0; i++ {
		if err := s.GetLog(i, &entry); err != nil {
			return fmt.Errorf("%w: entry %d of %d to %d: %w", ErrCorrupt, i, first, last, err)
		}
	}
	if err := s.scrubValues(entry.Term); err != nil {
		return err
	}
	return s.tail.checkSeq(s.seq)
}

// markTail updates the tail mark, unless some entries are superseded. The
// snapshot may turn out to belong to another node.
func (s *Log) markTail() error {
	if s.old.to > 0 {
		return nil
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	return s.tail.set(last, s.seq)
}

// DropSuperseded removes the entries that a snapshot supersedes. Call it after
// the snapshot is known to belong to this node, and before raft runs.
func (s *Log) DropSuperseded() error {
	to := s.old.to
	if to == 0 {
		return nil
	}
	s.old = superseded{}
	if err := s.DeleteRange(0, to); err != nil {
		return err
	}
	return s.markTail()
}

// scrubValues reads the values and finds the newest sequence number.
func (s *Log) scrubValues(lastTerm uint64) error {
	there := make(map[string]bool)
	for _, key := range keys() {
		_, seq, err := s.value([]byte(key))
		if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
			return err
		}
		there[key] = err == nil
		s.seq = max(s.seq, seq)
	}
	switch {
	case lastTerm > 0 && !there[KeyCurrentTerm]:
		return fmt.Errorf("%w: entries but no term", ErrCorrupt)
	case there[KeyLastVoteCand] && !there[KeyLastVoteTerm]: // Raft writes the term first.
		return fmt.Errorf("%w: a vote but not its term", ErrCorrupt)
	}
	return nil
}

// sum returns the checksum of the relevant fields of an entry.
func (s *Log) sum(l *raft.Log) [sumSize]byte {
	if fault.Planted(fault.UncheckedSums) {
		return [sumSize]byte{}
	}
	var head [17]byte
	binary.BigEndian.PutUint64(head[0:], l.Index)
	binary.BigEndian.PutUint64(head[8:], l.Term)
	head[16] = byte(l.Type)
	var out [sumSize]byte
	binary.BigEndian.PutUint32(out[:], crc32.Update(crc32.Checksum(head[:], s.sums), s.sums, l.Data))
	return out
}

// GetLog reads one entry. It returns the stored entry or an error.
func (s *Log) GetLog(index uint64, l *raft.Log) error {
	// Decoding leaves fields alone that a record does not name. An entry with a
	// damaged field name would otherwise pass with the old value.
	*l = raft.Log{}
	err := guard("read", func() error { return s.bolt.GetLog(index, l) })
	switch {
	case errors.Is(err, raft.ErrLogNotFound):
		return err
	case err != nil:
		err = fmt.Errorf("%w: entry %d: %w", ErrCorrupt, index, err)
	case l.Index != index || [sumSize]byte(pad(l.Extensions)) != s.sum(l):
		err = fmt.Errorf("%w: entry %d has a wrong checksum", ErrCorrupt, index)
	}
	if err != nil {
		*l = raft.Log{}
		s.fatal(err)
	}
	return err
}

// pad makes b as long as a checksum; a wrong length cannot match.
func pad(b []byte) []byte {
	if len(b) != sumSize {
		return make([]byte, sumSize)
	}
	return b
}

// StoreLogs appends entries, durably when it returns nil. It first checks
// entries that came from the leader with a checksum.
func (s *Log) StoreLogs(logs []*raft.Log) error {
	for _, l := range logs {
		sum := s.sum(l)
		if len(l.Extensions) == sumSize && [sumSize]byte(l.Extensions) != sum {
			return fmt.Errorf("store entry %d: the leader sent it with a wrong checksum", l.Index)
		}
		l.Extensions = sum[:]
	}
	err := s.space.once(func() error {
		if err := fault.Error("disk.append.before"); err != nil {
			return err
		}
		return guard("append", func() error { return s.bolt.StoreLogs(logs) })
	})
	if err != nil {
		err = fmt.Errorf("append to raft log: %w", err)
		s.failed(err)
		return err
	}
	fault.Point("disk.append.after")
	return s.marked(s.tail.setLast(logs[len(logs)-1].Index))
}

// marked handles an error of moving the tail mark forward. The data is already
// durable, and a mark that lags only weakens the check.
func (s *Log) marked(err error) error {
	if NoSpace(err) {
		return nil
	}
	s.failed(err)
	return err
}

// StoreLog appends one entry.
func (s *Log) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// FirstIndex returns the index of the oldest entry, 0 for none.
func (s *Log) FirstIndex() (index uint64, err error) {
	err = guard("read", func() error { index, err = s.bolt.FirstIndex(); return err })
	if s.old.to > 0 {
		index = s.old.first
	}
	return index, err
}

// LastIndex returns the index of the newest entry, 0 for none.
func (s *Log) LastIndex() (index uint64, err error) {
	err = guard("read", func() error { index, err = s.bolt.LastIndex(); return err })
	if index <= s.old.to {
		index = 0
	}
	return index, err
}

// DeleteRange removes the entries from low to high: the oldest after a
// snapshot, or the newest after a conflict with the leader.
func (s *Log) DeleteRange(low, high uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	if high >= last {
		left := low - 1
		if low <= first {
			left = 0
		}
		if err := s.tail.lower(left); err != nil {
			s.failed(err)
			return err
		}
	}
	fault.Point("disk.delete.before")
	if err := s.deleteInPieces(max(low, first), min(high, last), low <= first); err != nil {
		s.failed(err)
		return err
	}
	fault.Point("disk.delete.after")
	return nil
}

// deleteInPieces removes the entries from low to high in short transactions,
// because appends wait for them. It starts with the oldest entry or, if older
// ones stay, with the newest. A crash in between leaves no gap.
func (s *Log) deleteInPieces(low, high uint64, oldest bool) error {
	for low <= high {
		from, to := low, min(high, low+deletePiece-1)
		if !oldest && high-low >= deletePiece {
			from, to = high-deletePiece+1, high
		}
		err := s.space.once(func() error {
			return guard("delete", func() error { return s.bolt.DeleteRange(from, to) })
		})
		if err != nil {
			return fmt.Errorf("remove entries from raft log: %w", err)
		}
		if oldest {
			low = to + 1
		} else {
			high = from - 1
		}
	}
	return nil
}

// Set stores a value with a sequence number and a checksum.
func (s *Log) Set(key, value []byte) error {
	s.setMu.Lock()
	defer s.setMu.Unlock()
	data := binary.BigEndian.AppendUint64(bytes.Clone(value), s.seq+1)
	data = binary.BigEndian.AppendUint32(data, s.valueSum(key, data))
	set := func() error {
		if err := fault.Error("disk.set.before"); err != nil {
			return err
		}
		return guard("set", func() error { return s.bolt.Set(key, data) })
	}
	err := s.space.once(set)
	if NoSpace(err) && string(key) == KeyCurrentTerm {
		err = s.space.wait(set) // Raft ends the process if it cannot store a new term.
	}
	s.failed(err)
	if err != nil {
		return err
	}
	fault.Point("disk.set.after")
	s.seq++
	return s.marked(s.tail.setSeq(s.seq))
}

// failed ends the process after a write error that a retry cannot fix.
func (s *Log) failed(err error) {
	if lost := failing(err); lost != nil {
		s.fatal(lost)
	} else if errors.Is(err, ErrCorrupt) {
		s.fatal(err)
	}
}

// Get reads a value. A missing one is an error with the text "not found", which
// raft recognizes.
func (s *Log) Get(key []byte) ([]byte, error) {
	value, _, err := s.value(key)
	if errors.Is(err, ErrCorrupt) {
		s.fatal(err)
	}
	return value, err
}

// value reads a value and its sequence number.
func (s *Log) value(key []byte) (value []byte, seq uint64, err error) {
	var data []byte
	err = guard("get", func() error { data, err = s.bolt.Get(key); return err })
	if err != nil {
		return nil, 0, err
	}
	return s.parse(key, data)
}

// parse returns the value and the sequence number in data.
func (s *Log) parse(key, data []byte) (value []byte, seq uint64, err error) {
	end := len(data) - sumSize
	if end < seqSize || binary.BigEndian.Uint32(data[end:]) != s.valueSum(key, data[:end]) {
		return nil, 0, fmt.Errorf("%w: value %q has a wrong checksum", ErrCorrupt, key)
	}
	return data[:end-seqSize], binary.BigEndian.Uint64(data[end-seqSize:]), nil
}

func (s *Log) valueSum(key, data []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, s.sums), s.sums, data)
}

// SetUint64 stores a number.
func (s *Log) SetUint64(key []byte, v uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, v))
}

// GetUint64 reads a number.
func (s *Log) GetUint64(key []byte) (uint64, error) {
	value, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: value %q is not a number", ErrCorrupt, key)
	}
	return binary.BigEndian.Uint64(value), nil
}

// Close closes the file.
func (s *Log) Close() error {
	var err error
	if s.bolt != nil {
		err = s.bolt.Close()
	}
	return errors.Join(err, s.tail.close())
}

// Slack returns the number of free bytes in the file. Entries use them before
// the file grows. The file never shrinks.
func (s *Log) Slack() int64 {
	stats := s.bolt.Stats()
	return int64(stats.FreePageN+stats.PendingPageN) * int64(os.Getpagesize())
}

// guard runs fn and converts bolt's reaction to a damaged page, a panic or a
// fault in its memory map, to an error.
func guard(what string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %s: %v", ErrCorrupt, what, v)
		}
	}()
	return fn()
}
