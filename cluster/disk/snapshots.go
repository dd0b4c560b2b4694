package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"golang.org/x/sys/unix"

	"berth/cluster/file"
)

// Names in the library's snapshot store, and of the added seal.
const (
	snapshotsDir    = "snapshots"
	snapshotMeta    = "meta.json"
	snapshotContent = "state.bin"
	snapshotSeal    = "seal" // CRC32C of the meta data, which the library does not check.

	snapshotUnfinished = ".tmp" // Suffix of the directory of an unfinished snapshot.
)

// snapshotPiece is the number of bytes after which an unfinished snapshot is
// synced. One sync at the end would block an append for as long as a hanging
// disk does. The pieces also show whether the disk hangs.
const snapshotPiece = 16 << 20

// Snapshots is the library's file snapshot store with a watchdog. It also
// checks the meta data of each snapshot, which contains the last index and the
// configuration, and never lists a snapshot with a mismatch.
type Snapshots struct {
	store *raft.FileSnapshotStore
	dir   string
	watch *Watchdog
	fatal func(error)
	space spaceWaiter

	removing atomic.Int32  // Calls that are, or may be, removing snapshots.
	removals atomic.Uint64 // Number of finished calls.
}

// OpenSnapshots opens or creates the store in dir, which keeps the newest
// snapshots.
func OpenSnapshots(dir string, keep int, watch *Watchdog, fatal func(error), logger hclog.Logger) (*Snapshots, error) {
	store, err := raft.NewFileSnapshotStoreWithLogger(dir, keep, logger)
	if err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	return &Snapshots{store: store, dir: filepath.Join(dir, snapshotsDir), watch: watch, fatal: fatal}, nil
}

// OnNoSpace makes the store call free when a snapshot finds no disk space.
func (s *Snapshots) OnNoSpace(free func() bool) { s.space.free.Store(&free) }

// Create begins a snapshot. Implements raft.SnapshotStore.
func (s *Snapshots) Create(
	version raft.SnapshotVersion, index, term uint64,
	servers raft.Configuration, serversIndex uint64, trans raft.Transport,
) (raft.SnapshotSink, error) {
	defer s.watch.begin(accessSync)()
	var sink raft.SnapshotSink
	err := s.space.once(func() (err error) {
		sink, err = s.store.Create(version, index, term, servers, serversIndex, trans)
		return err
	})
	if err != nil {
		return nil, s.failed("begin", err)
	}
	content, err := os.Open(filepath.Join(s.dir, sink.ID()+snapshotUnfinished, snapshotContent))
	if err != nil {
		return nil, errors.Join(s.failed("begin", err), sink.Cancel())
	}
	return &snapshotSink{SnapshotSink: sink, store: s, content: content}, nil
}

// List returns the snapshots with intact meta data, newest first. The error may
// be that one cannot be read for now: such a snapshot counts neither as damaged
// nor as missing. Implements raft.SnapshotStore.
func (s *Snapshots) List() ([]*raft.SnapshotMeta, error) {
	all, err := s.store.List()
	if err != nil {
		return nil, s.failed("list", err)
	}
	if err := s.checkUnlisted(all); err != nil {
		return nil, err
	}
	var whole []*raft.SnapshotMeta
	for _, meta := range all {
		err := s.checkMeta(meta)
		if passing(err) {
			return nil, err
		}
		if err == nil {
			whole = append(whole, meta)
		}
	}
	return whole, nil
}

// checkUnlisted checks the snapshots with a higher index than those that the
// library has listed. The library omits a snapshot that it cannot read, for any
// reason.
func (s *Snapshots) checkUnlisted(listed []*raft.SnapshotMeta) error {
	var last uint64
	for _, meta := range listed {
		last = max(last, meta.Index)
	}
	claims, err := s.claims()
	if err != nil {
		return err
	}
	for id, index := range claims {
		if index <= last {
			continue
		}
		if _, err := s.sealOf(id); passing(err) {
			return s.failed("list", err)
		}
	}
	return nil
}

// claims returns the last index of each finished snapshot, according to its
// name.
func (s *Snapshots) claims() (map[string]uint64, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, s.failed("list", err)
	}
	claims := make(map[string]uint64)
	for _, e := range entries {
		if !e.IsDir() || strings.HasSuffix(e.Name(), snapshotUnfinished) {
			continue
		}
		var term, index uint64
		if n, _ := fmt.Sscanf(e.Name(), "%d-%d-", &term, &index); n == 2 {
			claims[e.Name()] = index
		}
	}
	return claims, nil
}

// passing reports whether an error is transient: the system refused the read,
// as with too many open files, and a retry may succeed.
func passing(err error) bool {
	_, refused := errors.AsType[unix.Errno](err)
	return refused && !slices.ContainsFunc([]error{unix.ENOENT, unix.EIO, unix.EUCLEAN, unix.EBADMSG},
		func(lost error) bool { return errors.Is(err, lost) })
}

// Open reads all of a snapshot once and then opens it. Implements
// raft.SnapshotStore.
func (s *Snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	defer s.watch.begin(accessSnapshot)()
	meta, content, err := s.store.Open(id)
	if err != nil {
		return nil, nil, s.failed("open", err)
	}
	if err := s.checkMeta(meta); err != nil {
		return nil, nil, errors.Join(err, content.Close())
	}
	return meta, content, nil
}

// Check reads all of a snapshot once and returns its fault.
func (s *Snapshots) Check(id string) error {
	_, content, err := s.Open(id)
	if err != nil {
		return err
	}
	return content.Close()
}

// Content opens the content of a snapshot for a reader that verifies it while
// reading. Open would make that reader wait for a complete read first.
func (s *Snapshots) Content(id string) (io.ReadCloser, error) {
	content, err := os.Open(filepath.Join(s.dir, id, snapshotContent))
	if err != nil {
		return nil, s.failed("open", err)
	}
	return &snapshotContents{File: content, store: s}, nil
}

// snapshotContents is the content of a snapshot, read under the watchdog.
type snapshotContents struct {
	*os.File

	store *Snapshots
}

func (c *snapshotContents) Read(into []byte) (int, error) {
	defer c.store.watch.begin(accessSnapshot)()
	n, err := c.File.Read(into)
	if err != nil && !errors.Is(err, io.EOF) {
		err = c.store.failed("read", err)
	}
	return n, err
}

// failed wraps an error, and ends the process if a retry cannot succeed.
func (s *Snapshots) failed(what string, err error) error {
	err = fmt.Errorf("%s snapshot: %w", what, err)
	if lost := failing(err); lost != nil {
		s.fatal(lost)
	}
	return err
}

// checkMeta compares the meta data with the seal and with the snapshot's name.
// A snapshot without a seal was finished right before a crash.
func (s *Snapshots) checkMeta(meta *raft.SnapshotMeta) error {
	if !strings.HasPrefix(meta.ID, fmt.Sprintf("%d-%d-", meta.Term, meta.Index)) {
		return fmt.Errorf("%w: snapshot %s claims to end at entry %d of term %d",
			ErrCorrupt, meta.ID, meta.Index, meta.Term)
	}
	seal, err := os.ReadFile(filepath.Join(s.dir, meta.ID, snapshotSeal))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var sum []byte
	if err == nil {
		sum, err = s.sealOf(meta.ID)
	}
	if err != nil {
		return s.failed("check", err)
	}
	if string(seal) != string(sum) {
		return fmt.Errorf("%w: the meta data of snapshot %s have a wrong checksum", ErrCorrupt, meta.ID)
	}
	return nil
}

// sealOf returns the current checksum of a snapshot's meta data.
func (s *Snapshots) sealOf(id string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, id, snapshotMeta))
	if err != nil {
		return nil, err
	}
	return binary.BigEndian.AppendUint32(nil, crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli))), nil
}

// seal stores the checksum of a finished snapshot's meta data.
func (s *Snapshots) seal(id string) error {
	sum, err := s.sealOf(id)
	if err == nil {
		err = file.Write(filepath.Join(s.dir, id, snapshotSeal), sum)
	}
	return err
}

// KeepNewest removes all snapshots except the newest readable one, to free disk
// space. Having none is not an error.
func (s *Snapshots) KeepNewest() error {
	defer s.removal()()
	all, err := s.List()
	if err != nil {
		return err
	}
	for i, meta := range all {
		if s.Check(meta.ID) != nil {
			continue
		}
		for _, old := range all[i+1:] {
			if err := os.RemoveAll(filepath.Join(s.dir, old.ID)); err != nil {
				return fmt.Errorf("remove snapshot: %w", err)
			}
		}
		return file.SyncDir(s.dir)
	}
	return nil
}

// snapshotSink is an unfinished snapshot under the watchdog.
type snapshotSink struct {
	raft.SnapshotSink

	store   *Snapshots
	content *os.File // The file that the library writes, to sync it.
	written int      // Since the last sync.
	done    bool
}

func (k *snapshotSink) Write(data []byte) (int, error) {
	n, err := k.write(data)
	if k.written += n; err == nil && k.written >= snapshotPiece {
		k.written = 0
		err = k.sync()
	}
	if err != nil {
		k.store.freeSpace(err)
		return n, k.store.failed("write", err)
	}
	return n, nil
}

func (k *snapshotSink) write(data []byte) (int, error) {
	defer k.store.watch.begin(accessSnapshot)()
	return k.SnapshotSink.Write(data)
}

// sync flushes the content written so far to disk.
func (k *snapshotSink) sync() error {
	defer k.store.watch.begin(accessSync)()
	return k.content.Sync()
}

// Close finishes the snapshot. Raft may call it again.
func (k *snapshotSink) Close() error {
	if k.done {
		return nil
	}
	k.done = true
	defer k.content.Close()
	defer k.store.watch.begin(accessSync)()
	defer k.store.removal()() // Close also removes surplus snapshots.
	if err := k.SnapshotSink.Close(); err != nil {
		k.store.freeSpace(err)
		return errors.Join(k.store.failed("finish", err), k.clear())
	}
	if err := k.store.seal(k.ID()); err != nil && !NoSpace(err) {
		return k.store.failed("seal", err)
	}
	return nil
}

// Cancel abandons the snapshot. Raft may call it after Close.
func (k *snapshotSink) Cancel() error {
	if k.done {
		return nil
	}
	k.done = true
	defer k.content.Close()
	if err := k.SnapshotSink.Cancel(); err != nil {
		return errors.Join(k.store.failed("cancel", err), k.clear())
	}
	return nil
}

// clear frees the space of a failed snapshot. The library leaves it there with
// its file open, so its content is truncated first.
func (k *snapshotSink) clear() error {
	dir := filepath.Join(k.store.dir, k.ID()+snapshotUnfinished)
	err := os.Truncate(filepath.Join(dir, snapshotContent), 0)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// freeSpace frees disk space for the next snapshot after this one found none. A
// partial snapshot cannot be continued.
func (s *Snapshots) freeSpace(err error) {
	if free := s.space.free.Load(); NoSpace(err) && free != nil {
		(*free)()
	}
}

// RemoveUnfinishedSnapshots deletes the snapshots that crashes left unfinished.
// The library never does.
func RemoveUnfinishedSnapshots(dir string) error {
	dir = filepath.Join(dir, snapshotsDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), snapshotUnfinished) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove unfinished snapshot: %w", err)
		}
	}
	return file.SyncDir(dir)
}

// Covered returns the last index of the newest readable snapshot, 0 without
// one, and the last index that any snapshot claims. It reads that snapshot
// completely. The error may be that one cannot be read for now.
func (s *Snapshots) Covered() (covered, claimed uint64, err error) {
	return s.newest(s.Check)
}

// Listed is Covered for a caller that reads the snapshot next, and thus finds
// out whether it is readable. It checks only the meta data.
func (s *Snapshots) Listed() (covered, claimed uint64, err error) {
	return s.newest(func(string) error { return nil })
}

func (s *Snapshots) newest(check func(id string) error) (covered, claimed uint64, err error) {
	claims, err := s.claims()
	if err != nil {
		return 0, 0, err
	}
	for _, index := range claims {
		claimed = max(claimed, index)
	}
	list, err := s.List()
	if err != nil {
		return 0, 0, err
	}
	for _, meta := range list {
		err := check(meta.ID)
		if err == nil {
			return meta.Index, claimed, nil
		}
		if passing(err) {
			return 0, 0, err
		}
	}
	return 0, claimed, nil
}

// CheckGap refuses a replica whose newest readable snapshot, which ends at
// covered, ends before its log begins. Raft would panic on it, or replay from
// the wrong entry. It also refuses a replica whose newest snapshot, readable or
// not, ends at claimed, if neither the log nor a readable snapshot reaches that
// index.
func CheckGap(logs raft.LogStore, covered, claimed uint64) error {
	first, err := logs.FirstIndex()
	if err != nil {
		return err
	}
	last, err := logs.LastIndex()
	if err != nil {
		return err
	}
	switch {
	case first > covered+1:
		return fmt.Errorf("%w: the newest readable snapshot ends at entry %d, the log begins at %d",
			ErrCorrupt, covered, first)
	case max(last, covered) < claimed:
		return fmt.Errorf("%w: the snapshot that ends at entry %d cannot be read, the log ends at %d",
			ErrCorrupt, claimed, last)
	}
	return nil
}
