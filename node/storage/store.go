package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"berth/compute"
	"berth/fault"
)

// MaxBlob is the largest blob in bytes.
const MaxBlob = 16 << 20

// ErrCorrupt is returned for a blob whose bytes on this disk are not those that
// were put. The bytes have been moved to quarantine.
var ErrCorrupt = errors.New("the blob on this disk is damaged")

// Store keeps blobs on one node's disk. Its methods are safe for concurrent
// use.
type Store struct {
	dir        string
	quarantine string
	now        func() time.Time
	unreadable sync.Map // The compute.Hash of files that exist but could not be read as their blob.
	journal    *journal
	shortage   shortage

	// mu is held while a blob is stored or removed, file system calls included: a
	// sweep must not remove a blob that a Put has just found and acknowledged.
	mu sync.Mutex
}

// Open returns the Store in a node's data directory. It removes the
// half-written files of a crash.
func Open(dataDir string, now func() time.Time) (*Store, error) {
	s := &Store{
		dir:        filepath.Join(dataDir, "blobs"),
		quarantine: filepath.Join(dataDir, "quarantine"),
		now:        now,
	}
	if err := os.RemoveAll(s.tmp()); err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	s.journal = &journal{dir: filepath.Join(s.dir, "journal"), limit: segmentSize}
	for _, dir := range []string{s.tmp(), s.journal.dir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("open blob store: %w", err)
		}
	}
	err := syncDir(s.dir)
	if err == nil {
		err = s.journal.replay(s.restore)
	}
	if err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	return s, nil
}

// Close releases the Store's files, after all calls have returned.
func (s *Store) Close() error { return s.journal.close() }

// Put makes data durable on this disk and returns its name. The code is
// no_space when the disk is full and too_large beyond MaxBlob.
func (s *Store) Put(data []byte) (compute.Hash, error) {
	hash := compute.Hash(sha256.Sum256(data))
	return hash, s.putAs(hash, data)
}

// putAs is Put of data whose hash is known.
func (s *Store) putAs(hash compute.Hash, data []byte) error {
	if len(data) > MaxBlob {
		return compute.Errorf(compute.CodeTooLarge, "A blob may have at most %d bytes.", MaxBlob)
	}
	if s.keep(hash) {
		if err := s.syncDirOf(hash); err != nil {
			return diskError("put blob", err)
		}
		return nil
	}
	err := s.write(hash, data)
	if err != nil {
		err = diskError("put blob", err)
	}
	s.shortage.record(len(data), err)
	return err
}

// keep reports whether an intact blob exists already. It renews the blob's time
// so that no sweep takes it.
func (s *Store) keep(hash compute.Hash) bool {
	if _, err := s.Get(hash); err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	return os.Chtimes(s.path(hash), now, now) == nil
}

// restore makes a blob's file again that a power cut may have taken.
func (s *Store) restore(hash compute.Hash, data []byte) error {
	if _, err := s.Get(hash); err == nil {
		return nil
	}
	return s.writeSynced(hash, data)
}

// write makes a blob durable, and its file.
func (s *Store) write(hash compute.Hash, data []byte) error {
	if len(data) > maxJournaled {
		return s.writeSynced(hash, data)
	}
	written, err := s.journal.add(hash, data)
	if err != nil {
		return err
	}
	defer written()
	return s.writeAs(hash, data, func(*os.File) error { return nil })
}

// writeSynced makes the blob's file, durable.
func (s *Store) writeSynced(hash compute.Hash, data []byte) error {
	err := s.writeAs(hash, data, func(f *os.File) error {
		if err := fault.Error("storage.write.sync"); err != nil {
			return err
		}
		return f.Sync()
	})
	if err != nil {
		return err
	}
	fault.Point("storage.placed")
	return s.syncDirOf(hash)
}

// writeAs makes the blob's file, which has its name after sync was called.
func (s *Store) writeAs(hash compute.Hash, data []byte, sync func(*os.File) error) error {
	f, err := os.CreateTemp(s.tmp(), "")
	if err != nil {
		return err
	}
	if err = writeFile(f, data); err == nil {
		err = sync(f)
	}
	now := s.now()
	err = errors.Join(err, f.Close(), os.Chtimes(f.Name(), now, now))
	if err == nil {
		err = s.place(f.Name(), hash)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // Otherwise the next Open removes it.
	}
	return err
}

// hasSpace reports whether the disk has space for a blob of some bytes and its line of the
// journal. It is false where the file system does not say.
func (s *Store) hasSpace(size int64) bool {
	f, err := os.CreateTemp(s.tmp(), "")
	if err != nil {
		return false
	}
	err = syscall.Fallocate(int(f.Fd()), 0, 0, size+maxJournaled)
	return errors.Join(err, os.Remove(f.Name()), f.Close()) == nil
}

// place gives the finished file its name. The first blob of a directory makes it.
func (s *Store) place(tmp string, hash compute.Hash) error {
	err := s.rename(tmp, hash)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Mkdir(filepath.Dir(s.path(hash)), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := syncDir(s.dir); err != nil {
		return err
	}
	return s.rename(tmp, hash)
}

func (s *Store) rename(tmp string, hash compute.Hash) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := fault.Error("storage.place"); err != nil {
		return err
	}
	if err := os.Rename(tmp, s.path(hash)); err != nil {
		return err
	}
	s.unreadable.Delete(hash)
	return nil
}

// Get returns the blob. The code is not_found when it is not on this disk. Get
// returns ErrCorrupt for a damaged blob and moves it to quarantine. If a
// damaged file cannot be moved, Has reports it as missing.
func (s *Store) Get(hash compute.Hash) ([]byte, error) {
	data, err := s.read(hash)
	switch {
	case err == nil, compute.CodeOf(err) == compute.CodeNotFound:
		s.unreadable.Delete(hash)
	default:
		s.unreadable.Store(hash, struct{}{})
	}
	return data, err
}

func (s *Store) read(hash compute.Hash) ([]byte, error) {
	f, err := os.Open(s.path(hash))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, compute.Errorf(compute.CodeNotFound, "There is no blob %s on this node.", Name(hash))
	}
	if err != nil {
		return nil, fmt.Errorf("get blob: %w", err)
	}
	data, err := readAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("get blob: %w", err)
	}
	if sha256.Sum256(data) != hash {
		if err := s.setAside(hash); err != nil {
			return nil, fmt.Errorf("get blob %s: %w, and it stays: %w", Name(hash), ErrCorrupt, err)
		}
		return nil, fmt.Errorf("get blob %s: %w", Name(hash), ErrCorrupt)
	}
	return data, nil
}

// peek reads the file of a blob into buf, without comparing it with the blob's name.
func (s *Store) peek(hash compute.Hash, buf []byte) ([]byte, error) {
	f, err := os.Open(s.path(hash))
	if err != nil {
		return nil, err
	}
	n, err := io.ReadFull(f, buf)
	if err == nil {
		err = errors.New("the file is longer than expected")
	} else if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return buf[:n], errors.Join(err, f.Close())
}

// readAll returns the content of a file, but at most a little more than the largest blob.
func readAll(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, min(info.Size(), MaxBlob+1))
	n, err := io.ReadFull(f, data)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil // It has become shorter: not the blob.
	}
	return data[:n], err
}

// damagedKept is how many damaged blobs are kept in quarantine.
const damagedKept = 16

// setAside moves a damaged blob to quarantine, for the operator to inspect. It
// removes the oldest ones there.
func (s *Store) setAside(hash compute.Hash) error {
	dir := filepath.Join(s.quarantine, s.now().UTC().Format("20060102T150405.000Z"))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	err := os.Rename(s.path(hash), filepath.Join(dir, Name(hash)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Another reader was faster.
	}
	if err == nil {
		s.prune()
	}
	return err
}

// prune keeps the newest damaged blobs and removes the others as far as
// possible. Quarantine has other directories too, which contain more than
// blobs.
func (s *Store) prune() {
	entries, err := os.ReadDir(s.quarantine) // By name, which is by time.
	if err != nil {
		return
	}
	notBlob := func(e fs.DirEntry) bool {
		_, err := ParseName(e.Name())
		return err != nil
	}
	kept := 0
	for _, e := range slices.Backward(entries) {
		dir := filepath.Join(s.quarantine, e.Name())
		inside, err := os.ReadDir(dir)
		if err != nil || slices.ContainsFunc(inside, notBlob) {
			continue
		}
		if kept += len(inside); kept > damagedKept {
			_ = os.RemoveAll(dir) // The next call tries again.
		}
	}
}

// Has reports whether the blob is on this disk, without reading it. A blob that
// could not be read at the last attempt is not.
func (s *Store) Has(hash compute.Hash) bool {
	if _, known := s.unreadable.Load(hash); known {
		return false
	}
	_, err := os.Stat(s.path(hash))
	return err == nil
}

// size returns the size of the blob's file, or 0 if there is none.
func (s *Store) size(hash compute.Hash) int {
	info, err := os.Stat(s.path(hash))
	if err != nil {
		return 0
	}
	return int(info.Size())
}

// OnDisk reports whether the blob is in the data directory of a stopped node,
// without reading it.
func OnDisk(dataDir string, hash compute.Hash) bool {
	s := Store{dir: filepath.Join(dataDir, "blobs")}
	return s.Has(hash)
}

// Delete removes the blob from this disk. A missing blob is not an error.
func (s *Store) Delete(hash compute.Hash) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Remove(s.path(hash)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete blob: %w", err)
	}
	return nil
}

// Sweep removes every blob on this disk that live does not know and that was
// put, or put again, longer ago than minAge. A younger blob may belong to a
// command that has not been applied yet. Sweep returns how many it removed.
func (s *Store) Sweep(live func(compute.Hash) bool, minAge time.Duration) (int, error) {
	before := s.now().Add(-minAge)
	removed := 0
	err := filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path == s.tmp() || path == s.journal.dir {
				return fs.SkipDir
			}
			return nil
		}
		hash, err := ParseName(entry.Name())
		if err != nil || live(hash) {
			return nil //nolint:nilerr // Other files are not ours to remove.
		}
		gone, err := s.removeOld(path, before)
		if gone {
			removed++
		}
		return err
	})
	if err != nil {
		return removed, fmt.Errorf("sweep blobs: %w", err)
	}
	return removed, nil
}

// removeOld removes the file at path unless it was written after before.
func (s *Store) removeOld(path string, before time.Time) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.ModTime().After(before) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, os.Remove(path)
}

// Name returns a blob's name: the hash in lower-case hexadecimal.
func Name(hash compute.Hash) string { return hex.EncodeToString(hash[:]) }

// ParseName is the inverse of Name.
func ParseName(name string) (compute.Hash, error) {
	var hash compute.Hash
	b, err := hex.DecodeString(name)
	if err != nil || len(b) != len(hash) || hex.EncodeToString(b) != name {
		return hash, compute.Errorf(compute.CodeInvalid, "%q is not the name of a blob.", name)
	}
	copy(hash[:], b)
	return hash, nil
}

func (s *Store) tmp() string { return filepath.Join(s.dir, "tmp") }

func (s *Store) path(hash compute.Hash) string {
	name := Name(hash)
	return filepath.Join(s.dir, name[:2], name)
}

// syncDirOf makes the blob's name durable.
func (s *Store) syncDirOf(hash compute.Hash) error { return syncDir(filepath.Dir(s.path(hash))) }

// syncDir makes the entries of a directory durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// diskError gives the error of a full disk its code.
func diskError(what string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return compute.Errorf(compute.CodeNoSpace, "The disk of this node is full: %w", err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
