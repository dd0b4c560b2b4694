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

// Where the library keeps snapshots, and what is beside each.
const (
	snapshotsDir    = "snapshots"
	snapshotMeta    = "meta.json"
	snapshotContent = "state.bin"
	snapshotSeal    = "seal" // CRC32C of the meta data, which the library does not check.

	snapshotUnfinished = ".tmp" // How the directory of one ends that is not finished.
)

// snapshotPiece is after how many bytes a snapshot that is written goes to the
// disk. All of it at its end would keep an append waiting for as long as a disk
// that hangs; and whether it hangs meanwhile shows in these pieces.
const snapshotPiece = 16 << 20

// Snapshots is the library's store of snapshots in files, under watch. It also
// checks the meta data of each, which say up to which entry it goes and who
// voted then; what does not match is never listed.
type Snapshots struct {
	store *raft.FileSnapshotStore
	dir   string
	watch *Watchdog
	fatal func(error)
	room  spaceWaiter

	removing atomic.Int32  // How many remove snapshots now, or may.
	removals atomic.Uint64 // How often that has ended.
}

// OpenSnapshots opens or makes the store in dir, which keeps the newest ones.
func OpenSnapshots(dir string, keep int, watch *Watchdog, fatal func(error), logger hclog.Logger) (*Snapshots, error) {
	store, err := raft.NewFileSnapshotStoreWithLogger(dir, keep, logger)
	if err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	return &Snapshots{store: store, dir: filepath.Join(dir, snapshotsDir), watch: watch, fatal: fatal}, nil
}

// Relieve has the store call relieve when a snapshot finds no room.
func (s *Snapshots) Relieve(relieve func() bool) { s.room.relieve.Store(&relieve) }

// Create begins a snapshot. Implements raft.SnapshotStore.
func (s *Snapshots) Create(
	version raft.SnapshotVersion, index, term uint64,
	servers raft.Configuration, serversIndex uint64, trans raft.Transport,
) (raft.SnapshotSink, error) {
	defer s.watch.begin(accessSync)()
	var sink raft.SnapshotSink
	err := s.room.once(func() (err error) {
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

// List returns the snapshots whose meta data are whole, the newest first. The error
// may say that one cannot be read for now: it does not count as damaged, nor as gone.
// Implements raft.SnapshotStore.
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

// checkUnlisted looks at the snapshots that claim more than those that the library
// has listed: it leaves out what it cannot read, whatever the reason.
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

// claims returns at which entry each finished snapshot ends, by its name alone.
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

// passing reports whether an error says nothing about the snapshot that was not read:
// the system refused it, as with too many open files, and may not the next time.
func passing(err error) bool {
	_, refused := errors.AsType[unix.Errno](err)
	return refused && !slices.ContainsFunc([]error{unix.ENOENT, unix.EIO, unix.EUCLEAN, unix.EBADMSG},
		func(lost error) bool { return errors.Is(err, lost) })
}

// Open opens a snapshot after it has read all of it once. Implements
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

// Check reads all of a snapshot once and returns what is wrong with it.
func (s *Snapshots) Check(id string) error {
	_, content, err := s.Open(id)
	if err != nil {
		return err
	}
	return content.Close()
}

// Content opens what a snapshot holds for a reader that checks it as it reads,
// and that otherwise would wait until Open had read all of it once.
func (s *Snapshots) Content(id string) (io.ReadCloser, error) {
	content, err := os.Open(filepath.Join(s.dir, id, snapshotContent))
	if err != nil {
		return nil, s.failed("open", err)
	}
	return &snapshotContents{File: content, store: s}, nil
}

// snapshotContents is what a snapshot holds, read under watch.
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

// failed wraps an error, and ends the process after one that no repeat mends.
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
		return fmt.Errorf("%w: snapshot %s says that it ends at entry %d of term %d",
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

// sealOf returns the checksum of a snapshot's meta data as it is now.
func (s *Snapshots) sealOf(id string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, id, snapshotMeta))
	if err != nil {
		return nil, err
	}
	return binary.BigEndian.AppendUint32(nil, crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli))), nil
}

// seal keeps the checksum of a finished snapshot's meta data.
func (s *Snapshots) seal(id string) error {
	sum, err := s.sealOf(id)
	if err == nil {
		err = file.Write(filepath.Join(s.dir, id, snapshotSeal), sum)
	}
	return err
}

// KeepNewest removes all snapshots but the newest that can be read, to make
// room. It is no error if there is none.
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

// snapshotSink is a snapshot that is being written, under watch.
type snapshotSink struct {
	raft.SnapshotSink

	store   *Snapshots
	content *os.File // What the library writes, to sync it.
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
		k.store.makeRoom(err)
		return n, k.store.failed("write", err)
	}
	return n, nil
}

func (k *snapshotSink) write(data []byte) (int, error) {
	defer k.store.watch.begin(accessSnapshot)()
	return k.SnapshotSink.Write(data)
}

// sync has what was written so far on disk.
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
	defer k.store.removal()() // Of those that are one too many.
	if err := k.SnapshotSink.Close(); err != nil {
		k.store.makeRoom(err)
		return errors.Join(k.store.failed("finish", err), k.clear())
	}
	if err := k.store.seal(k.ID()); err != nil && !NoSpace(err) {
		return k.store.failed("seal", err)
	}
	return nil
}

// Cancel gives the snapshot up. Raft may call it after Close.
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

// clear gives back what a snapshot that failed takes. The library leaves it
// there, with its file open: what it holds goes first.
func (k *snapshotSink) clear() error {
	dir := filepath.Join(k.store.dir, k.ID()+snapshotUnfinished)
	err := os.Truncate(filepath.Join(dir, snapshotContent), 0)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// makeRoom has room made for the next snapshot, since this one found none: what
// was written of it cannot be taken up again.
func (s *Snapshots) makeRoom(err error) {
	if relieve := s.room.relieve.Load(); NoSpace(err) && relieve != nil {
		(*relieve)()
	}
}

// RemoveUnfinishedSnapshots deletes what crashes in the middle of a snapshot
// left; the library never does.
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

// Covered returns the entry at which the newest readable snapshot ends, 0 when
// there is none, and the one at which the newest of all ends. It reads that
// snapshot whole. The error may say that one cannot be read for now.
func (s *Snapshots) Covered() (covered, claimed uint64, err error) {
	return s.newest(s.Check)
}

// Listed is as Covered, for who reads the snapshot next and finds out by that
// whether it can be read: its meta data are looked at alone.
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
// covered, ends before its log begins: raft would panic on it, or replay from
// the wrong entry. It also refuses one whose newest snapshot, readable or not,
// ends at claimed, which neither the log nor a snapshot reaches any more.
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
