package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"golang.org/x/sys/unix"
)

func TestWatchdog(t *testing.T) {
	const limit = 2 * time.Second
	tick := func(n int) time.Duration { return time.Duration(n) * WatchTick }
	for _, test := range []struct {
		name   string
		checks []time.Duration // Since the write began.
		hangs  bool
	}{
		{"a quick look", []time.Duration{tick(1)}, false},
		{"just within the limit", ticks(20), false},
		{"over the limit", ticks(24), true},
		{"the process stood still", []time.Duration{tick(1), tick(2), time.Hour, time.Hour + tick(1)}, false},
		{"stood still, then hangs", append([]time.Duration{tick(1)}, after(time.Hour, ticks(24))...), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			start := time.Now()
			w := &Watchdog{Now: func() time.Time { return start }}
			err := w.Check(start.Add(-WatchTick), limit)
			w.begin(accessWrite)
			err = errors.Join(err, w.Check(start, limit))
			for _, at := range test.checks {
				err = errors.Join(err, w.Check(start.Add(at), limit))
			}
			if (err != nil) != test.hangs {
				t.Errorf("got %v", err)
			}
		})
	}
}

func ticks(n int) []time.Duration {
	var all []time.Duration
	for i := range n {
		all = append(all, time.Duration(i+1)*WatchTick)
	}
	return all
}

func after(start time.Duration, all []time.Duration) []time.Duration {
	moved := make([]time.Duration, len(all))
	for i, d := range all {
		moved[i] = start + d
	}
	return moved
}

func TestWatchdogForgetsEndedAccesses(t *testing.T) {
	start := time.Now()
	w := &Watchdog{Now: func() time.Time { return start }}
	for i := range 100 { // Ten seconds of writes that all return.
		end := w.begin(accessWrite)
		if err := w.Check(start.Add(time.Duration(i)*WatchTick), time.Second); err != nil {
			t.Fatal(err)
		}
		end()
	}
}

// TestWatchdogIsIdle has nothing to check between the end of an access and the next one.
func TestWatchdogIsIdle(t *testing.T) {
	w := &Watchdog{Now: time.Now}
	next := w.Idle()
	if next == nil {
		t.Fatal("it was not used, and is not idle")
	}
	end := w.begin(accessRead)
	select {
	case <-next:
	default:
		t.Fatal("an access does not end the wait")
	}
	if w.Idle() != nil {
		t.Error("it is idle during an access")
	}
	end()
	w.begin(accessWrite)()
	if w.Idle() != nil {
		t.Error("it is idle right after an access")
	}
	if w.Idle() == nil {
		t.Error("it is not idle, though no access came since the last call")
	}
}

func TestWatchdogDistinguishesAccesses(t *testing.T) {
	start := time.Now()
	at := 0
	look := func(w *Watchdog, ticks int) (err error) {
		for range ticks {
			at++
			err = errors.Join(err, w.Check(start.Add(time.Duration(at)*WatchTick), AppendLimitLeader))
		}
		return err
	}
	// pieces makes consecutive accesses that take a number of ticks each.
	pieces := func(kind access, ticks int) func(w *Watchdog) {
		tick, end := 0, func() {}
		return func(w *Watchdog) {
			if tick%ticks == 0 {
				end()
				end = w.begin(kind)
			}
			tick++
		}
	}
	for _, test := range []struct {
		name    string
		kind    access
		beside  func(w *Watchdog) // On each tick.
		seconds int
		hangs   bool
	}{
		{"a write while reads go on", accessWrite, func(w *Watchdog) { w.begin(accessRead)() }, 3, true},
		{"a write while others end", accessWrite, func(w *Watchdog) { w.begin(accessWrite)() }, 60, false},
		{"a write while a snapshot goes to memory", accessWrite, pieces(accessSnapshot, 1), 3, true},
		{"a write while one goes to a slow disk", accessWrite, pieces(accessSync, 15), 60, false},
		{"a write while one goes to a disk that hangs", accessWrite, pieces(accessSync, 600), 3, true},
		{"a sync of a snapshot within its limit", accessSync, func(*Watchdog) {}, 59, false},
		{"a small write", accessProbe, func(*Watchdog) {}, 3, true},
		{"a read within its limit", accessRead, func(*Watchdog) {}, 29, false},
		{"a read over its limit", accessRead, func(*Watchdog) {}, 31, true},
		{"a removal within its limit", accessDelete, func(*Watchdog) {}, 59, false},
		{"a snapshot over its limit", accessSnapshot, func(*Watchdog) {}, 61, true},
		{"a write that waits for space", accessWrite, func(w *Watchdog) { w.Starved = func() bool { return true } }, 60, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &Watchdog{}
			w.begin(test.kind)
			var err error
			for range test.seconds * int(time.Second/WatchTick) {
				test.beside(w)
				err = errors.Join(err, look(w, 1))
			}
			if (err != nil) != test.hangs {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestSnapshotReachesTheDiskInPieces checks that a write beside a snapshot is
// known to wait for its turn once a piece of the snapshot has reached the disk,
// and not before.
func TestSnapshotReachesTheDiskInPieces(t *testing.T) {
	start := time.Now()
	watch := &Watchdog{}
	_, sink := mustSink(t, watch)
	watch.begin(accessWrite)
	for i := range 8 {
		if err := watch.Check(start.Add(time.Duration(i)*WatchTick), AppendLimitLeader); err != nil {
			t.Fatal(err)
		}
	}
	waits := watch.Pending()
	piece := make([]byte, snapshotPiece/8)
	for written := 0; written < snapshotPiece; written += len(piece) {
		if got := watch.Pending(); got != waits || got == 0 {
			t.Fatalf("with %d bytes written the write beside it has hung for %s, before for %s", written, got, waits)
		}
		if _, err := sink.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if got := watch.Pending(); got != 0 {
		t.Errorf("with a piece on disk the write beside it has hung for %s", got)
	}
	if err := sink.Cancel(); err != nil {
		t.Fatal(err)
	}
	if err := sink.(*snapshotSink).content.Close(); err == nil {
		t.Error("its file is left open")
	}
}

func TestWriteWithoutSpace(t *testing.T) {
	var r spaceWaiter
	freed, writes := 0, 0
	free := func() bool { freed++; return freed == 1 }
	r.free.Store(&free)
	write := func(failures int) func() error {
		writes = 0
		return func() error {
			if writes++; writes <= failures {
				return fmt.Errorf("write: %w", unix.ENOSPC)
			}
			return nil
		}
	}
	if err := r.once(write(1)); err != nil || freed != 1 || writes != 2 {
		t.Errorf("with a ballast: %v after %d writes", err, writes)
	}
	if err := r.once(write(1)); !NoSpace(err) || freed != 2 || writes != 1 {
		t.Errorf("without: %v after %d writes", err, writes)
	}
	if err := r.wait(write(3)); err != nil || writes != 4 || r.starved.Load() {
		t.Errorf("a term: %v after %d writes", err, writes)
	}
	var nobody spaceWaiter
	if err := nobody.wait(write(3)); !NoSpace(err) || writes != 1 {
		t.Errorf("a term, if nothing frees space: %v after %d writes", err, writes)
	}
}

func TestLogCacheIsBounded(t *testing.T) {
	c := &Cache{LogStore: raft.NewInmemStore()}
	const size = 400 << 10
	for i := uint64(1); i <= 100; i++ {
		if err := c.StoreLog(&raft.Log{Index: i, Data: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
		if c.bytes > cacheBytes {
			t.Fatalf("after entry %d the cache holds %d bytes", i, c.bytes)
		}
	}
	if c.bytes < cacheBytes/2 || c.high != 100 || c.low <= 1 {
		t.Errorf("it holds %d bytes, entries %d to %d", c.bytes, c.low, c.high)
	}
	var l raft.Log
	for _, i := range []uint64{1, c.low - 1, c.low, 100} {
		if err := c.GetLog(i, &l); err != nil || l.Index != i {
			t.Errorf("entry %d: %d, %v", i, l.Index, err)
		}
	}
}

func TestLogCacheForgetsOverruledEntries(t *testing.T) {
	c := &Cache{LogStore: raft.NewInmemStore()}
	for i := uint64(1); i <= 2*cacheEntries; i++ {
		if err := c.StoreLog(&raft.Log{Index: i, Term: 1}); err != nil {
			t.Fatal(err)
		}
	}
	last := uint64(2 * cacheEntries)
	if err := c.DeleteRange(1, 10); err != nil {
		t.Fatal(err)
	}
	if c.high != last {
		t.Error("compaction far behind emptied the cache")
	}
	if err := c.DeleteRange(last-10, last); err != nil {
		t.Fatal(err)
	}
	var l raft.Log
	if err := c.GetLog(last, &l); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("an entry that was removed: %+v, %v", l, err)
	}
	if err := c.StoreLog(&raft.Log{Index: last - 10, Term: 2}); err != nil {
		t.Fatal(err)
	}
	if err := c.GetLog(last-10, &l); err != nil || l.Term != 2 {
		t.Errorf("an entry that was overruled: %+v, %v", l, err)
	}
}

// TestNoVoteIsStored checks that the store refuses only a vote, and only
// while the server may not vote.
func TestNoVoteIsStored(t *testing.T) {
	may := false
	w := &Watchdog{Stable: raft.NewInmemStore(), MayVote: func() bool { return may }}
	if err := w.SetUint64([]byte(KeyCurrentTerm), 7); err != nil {
		t.Errorf("the term: %v", err)
	}
	if err := w.SetUint64([]byte(KeyLastVoteTerm), 7); err == nil {
		t.Error("a vote was stored")
	}
	may = true
	if err := w.SetUint64([]byte(KeyLastVoteTerm), 7); err != nil {
		t.Errorf("a vote: %v", err)
	}
}

// TestNoOlderTermIsWritten checks that a term never overwrites a newer one.
func TestNoOlderTermIsWritten(t *testing.T) {
	store := raft.NewInmemStore()
	w, key := &Watchdog{Stable: store}, []byte(KeyCurrentTerm)
	for _, term := range []uint64{6, 6, 7} {
		if err := w.SetUint64(key, term); err != nil {
			t.Errorf("term %d: %v", term, err)
		}
	}
	err := w.SetUint64(key, 6)
	if got, _ := store.GetUint64(key); err == nil || got != 7 {
		t.Errorf("after an older one the term is %d, error %v", got, err)
	}
}

// TestOneVoteATerm checks that the store accepts one vote per term, and repeats
// of it.
func TestOneVoteATerm(t *testing.T) {
	w := &Watchdog{Stable: raft.NewInmemStore()}
	for _, vote := range []struct {
		term uint64
		who  string
		ok   bool
	}{{6, "a", true}, {6, "a", true}, {6, "b", false}, {7, "b", true}, {7, "a", false}, {8, "a", true}} {
		err := errors.Join(w.SetUint64([]byte(KeyLastVoteTerm), vote.term), w.Set([]byte(KeyLastVoteCand), []byte(vote.who)))
		if (err == nil) != vote.ok {
			t.Errorf("the vote for %s in term %d: %v", vote.who, vote.term, err)
		}
	}
}

// TestPassing checks which errors of a snapshot are transient.
func TestPassing(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EMFILE: true, unix.EACCES: true, unix.EROFS: true,
		unix.EIO: false, unix.ENOENT: false, unix.EUCLEAN: false, unix.EBADMSG: false, ErrCorrupt: false,
	} {
		if got := passing(fmt.Errorf("read: %w", err)); got != want {
			t.Errorf("%v passes: %v, want %v", err, got, want)
		}
	}
}

// TestErrorsThatEndTheProcess checks which disk failures end the process, and
// that they are not damage of the replica.
func TestErrorsThatEndTheProcess(t *testing.T) {
	for _, test := range []struct {
		err        error
		log, snaps bool // The process ends for a log, for a snapshot.
	}{
		{unix.EIO, true, true},
		{unix.EROFS, true, true},
		{ErrCorrupt, true, false},
		{unix.ENOSPC, false, false},
		{unix.EDQUOT, false, false},
		{unix.EMFILE, false, false},
	} {
		var ended error
		fatal := func(err error) { ended = err }
		err := fmt.Errorf("append to raft log: %w", test.err)
		(&Log{fatal: fatal}).failed(err)
		if (ended != nil) != test.log || test.log && !errors.Is(ended, test.err) {
			t.Errorf("the log, after %v: %v", err, ended)
		}
		ended = nil
		if err := (&Snapshots{fatal: fatal}).failed("write", test.err); !errors.Is(err, test.err) {
			t.Errorf("a snapshot's error is %v, want %v", err, test.err)
		}
		if (ended != nil) != test.snaps || test.snaps && !errors.Is(ended, test.err) {
			t.Errorf("a snapshot, after %v: %v", test.err, ended)
		}
	}
	for _, passing := range []error{unix.EROFS, unix.ENOSPC, unix.EMFILE, unix.EACCES} {
		if err := fmt.Errorf("%w: %w", ErrCorrupt, passing); Damaged(err) {
			t.Errorf("a replica is given up for %v", passing)
		}
	}
}

// mustSink returns a watched store and the sink of its first snapshot.
func mustSink(t *testing.T, watch *Watchdog) (*Snapshots, raft.SnapshotSink) {
	t.Helper()
	s, err := OpenSnapshots(t.TempDir(), 2, watch, func(err error) { t.Error(err) }, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	_, transport := raft.NewInmemTransport("")
	sink, err := s.Create(raft.SnapshotVersionMax, 7, 1, raft.Configuration{}, 1, transport)
	if err != nil {
		t.Fatal(err)
	}
	return s, sink
}

// mustSnapshot returns a store with one snapshot, and its id.
func mustSnapshot(t *testing.T) (s *Snapshots, id string) {
	t.Helper()
	watch := &Watchdog{Now: time.Now, Observed: func(time.Duration) {}}
	s, sink := mustSink(t, watch)
	if _, err := sink.Write([]byte("content")); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	return s, sink.ID()
}

// TestSetAside moves an existing or a missing snapshot to an existing or a
// missing directory.
func TestSetAside(t *testing.T) {
	s, id := mustSnapshot(t)
	to := t.TempDir()
	if err := s.SetAside(id, filepath.Join(to, "gone")); err == nil {
		t.Error("it was moved to nowhere")
	}
	if err := s.SetAside(id, to); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(to, id, snapshotContent)); err != nil {
		t.Errorf("it is not there: %v", err)
	}
	if err := s.SetAside(id, to); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
}

// TestScrubWhileSnapshotsAreRemoved reads a snapshot whose files are missing.
// That is damage, unless snapshots are removed meanwhile.
func TestScrubWhileSnapshotsAreRemoved(t *testing.T) {
	s, id := mustSnapshot(t)
	if damaged, _, err := s.Scrub(func(int) error { return nil }); err != nil || len(damaged) != 0 {
		t.Fatalf("a whole one: %v, %v", damaged, err)
	}
	if err := os.Remove(filepath.Join(s.dir, id, snapshotContent)); err != nil {
		t.Fatal(err)
	}
	end := s.removal()
	if damaged, _, err := s.Scrub(func(int) error { return nil }); err != nil || len(damaged) != 0 {
		t.Errorf("while it is removed: %v, %v", damaged, err)
	}
	ended := false
	damaged, _, err := s.Scrub(func(int) error { // The removal ends while the snapshot is read again.
		if !ended {
			ended = true
			end()
			return os.RemoveAll(filepath.Join(s.dir, id))
		}
		return nil
	})
	if err != nil || len(damaged) != 0 || !ended {
		t.Errorf("once it is removed: %v, %v", damaged, err)
	}
	if err := os.Mkdir(filepath.Join(s.dir, id), 0o700); err != nil {
		t.Fatal(err)
	}
	if damaged, reason, err := s.Scrub(func(int) error { return nil }); err != nil || len(damaged) != 1 {
		t.Errorf("that stays so: %v, %v, %v", damaged, reason, err)
	}
}

// TestScrubOfAnUnreadableSnapshot replaces a file of a snapshot with one that
// cannot be read. That is not damage of the snapshot. A disk error ends the
// process.
func TestScrubOfAnUnreadableSnapshot(t *testing.T) {
	for _, test := range []struct {
		file, target string
		want         error
		ends         bool
	}{
		{snapshotContent, "/proc/self/mem", unix.EIO, true}, // It has no readable beginning.
		{snapshotMeta, "/proc/self/mem", unix.EIO, true},
		{snapshotSeal, "/proc/self/mem", unix.EIO, true},
		{snapshotContent, snapshotContent, unix.ELOOP, false},
		{snapshotMeta, snapshotMeta, unix.ELOOP, false},
	} {
		s, id := mustSnapshot(t)
		var ended error
		s.fatal = func(err error) { ended = err }
		path := filepath.Join(s.dir, id, test.file)
		if err := errors.Join(os.Remove(path), os.Symlink(test.target, path)); err != nil {
			t.Fatal(err)
		}
		damaged, _, err := s.Scrub(func(int) error { return nil })
		if !errors.Is(err, test.want) || len(damaged) != 0 {
			t.Errorf("%s, %v: damaged %v, %v", test.file, test.want, damaged, err)
		}
		if (ended != nil) != test.ends {
			t.Errorf("%s, %v: it ends with %v", test.file, test.want, ended)
		}
	}
}

// TestUnreadableSnapshotIsNotGone replaces a file of a snapshot with one that
// cannot be read for now. Listing returns the error, and does not treat the
// replica as damaged. A damaged or missing snapshot is omitted.
func TestUnreadableSnapshotIsNotGone(t *testing.T) {
	put := func(target string) func(path string) error {
		return func(path string) error { return os.Symlink(target, path) }
	}
	flip := func(path string) error { return os.WriteFile(path, []byte("{}"), 0o600) }
	for _, test := range []struct {
		name, file       string
		put              func(path string) error
		listed, readable error // Errors of Listed and of Covered.
		covered          uint64
	}{
		{"meta data", snapshotMeta, put(snapshotMeta), unix.ELOOP, unix.ELOOP, 0},
		{"seal", snapshotSeal, put(snapshotSeal), unix.ELOOP, unix.ELOOP, 0},
		{"content", snapshotContent, put(snapshotContent), nil, unix.ELOOP, 7},
		{"meta data are damaged", snapshotMeta, flip, nil, nil, 0},
		{"seal is damaged", snapshotSeal, flip, nil, nil, 0},
		{"meta data are gone", snapshotMeta, nil, nil, nil, 0},
		{"content is gone", snapshotContent, nil, nil, nil, 7},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, id := mustSnapshot(t)
			path := filepath.Join(s.dir, id, test.file)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if test.put != nil {
				if err := test.put(path); err != nil {
					t.Fatal(err)
				}
			}
			covered, claimed, err := s.Listed()
			if !errors.Is(err, test.listed) || covered != test.covered || err == nil && claimed != 7 {
				t.Errorf("it is listed up to %d of %d, %v", covered, claimed, err)
			}
			covered, claimed, err = s.Covered()
			if !errors.Is(err, test.readable) || covered != 0 || err == nil && claimed != 7 {
				t.Errorf("it covers %d of %d, %v", covered, claimed, err)
			}
		})
	}
}
