package disk_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"berth/cluster/disk"
	"berth/testsize"
)

// mustStore opens the store in dir.
func mustStore(t testing.TB, dir string) *disk.Log {
	t.Helper()
	s, err := disk.Open(dir, 0, func(err error) { t.Errorf("fatal: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// storedEntries returns entries of many sizes.
func storedEntries(from, to uint64) []*raft.Log {
	random := rand.New(rand.NewPCG(1, from))
	var logs []*raft.Log
	for i := from; i <= to; i++ {
		data := make([]byte, random.IntN(900))
		for j := range data {
			data[j] = byte(random.Uint32())
		}
		logs = append(logs, &raft.Log{Index: i, Term: 1 + i/50, Type: raft.LogCommand, Data: data})
	}
	return logs
}

func mustStoreEntries(t testing.TB, s raft.LogStore, logs []*raft.Log) {
	t.Helper()
	for i := 0; i < len(logs); i += 200 {
		if err := s.StoreLogs(logs[i:min(i+200, len(logs))]); err != nil {
			t.Fatal(err)
		}
	}
}

var flipsFlag = flag.Int("disk.flips", testsize.Pick(110, 250), "bits to flip, one at a time; as many in what leads to the values")

// damage is one way to damage a store.
type damage struct {
	name string
	do   func(image []byte) []byte // Changes a copy.
}

// flip flips a bit of a byte between two offsets.
func flip(random *rand.Rand, from, to int) damage {
	bit := from*8 + random.IntN((to-from)*8)
	return damage{fmt.Sprintf("bit %d of byte %d", bit%8, bit/8), func(image []byte) []byte {
		image[bit/8] ^= 1 << (bit % 8)
		return image
	}}
}

// damages returns flipped bits anywhere in a store, more of them on the path to
// the values, and a truncation.
func damages(image []byte, flips int) (all []damage) {
	random := rand.New(rand.NewPCG(7, 7))
	head, elements := valuesIn(image)
	for range flips {
		all = append(all, flip(random, 0, len(image)), flip(random, head, elements+imageValues*16))
	}
	for range flips / 10 {
		size := random.IntN(len(image))
		all = append(all, damage{fmt.Sprintf("cut to %d bytes", size), func(image []byte) []byte { return image[:size] }})
	}
	for from := 0; ; { // Field names of entries: without one the record seems unchanged.
		at := bytes.Index(image[from:], []byte("Term"))
		if at < 0 {
			break
		}
		from += at + 1
		if random.IntN(16) == 0 {
			all = append(all, flip(random, from-1, from))
		}
	}
	for i := range imageValues {
		at := elements + i*16 // The flag that marks a bucket.
		all = append(all, damage{fmt.Sprintf("value %d is a bucket", i), func(image []byte) []byte {
			image[at] ^= 1
			return image
		}})
	}
	return all
}

// valuesIn returns where the values are. They are too few for their own page,
// so they are in the root page that the newer meta page names.
func valuesIn(image []byte) (head, elements int) {
	size := os.Getpagesize()
	meta := image[16:]
	if newer := image[size+16:]; binary.NativeEndian.Uint64(newer[48:]) > binary.NativeEndian.Uint64(meta[48:]) {
		meta = newer
	}
	root := size * int(binary.NativeEndian.Uint64(meta[16:]))
	head = root + bytes.Index(image[root:root+size], []byte("conf")) + len("conf")
	return head, head + 32
}

// outcomes counts the results of reading damaged stores.
type outcomes struct {
	caughtOpen, caughtRead, harmless, silent int
}

// countOutcomes opens differently damaged copies of a store and reads
// everything back.
func countOutcomes(
	t *testing.T, image []byte, wrote []*raft.Log, all []damage,
	open func(t *testing.T, dir, damage string) (raft.LogStore, func() error, error),
) (o outcomes) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range all {
		if err := os.WriteFile(filepath.Join(dir, "raft.db"), d.do(bytes.Clone(image)), 0o600); err != nil {
			t.Fatal(err)
		}
		s, closeStore, err := open(t, dir, d.name)
		if err != nil {
			o.caughtOpen++
			continue
		}
		switch err := compareStore(s, wrote); {
		case err == nil:
			o.harmless++
		case errors.Is(err, errSilent):
			o.silent++
		default:
			o.caughtRead++
			t.Logf("%s: not found before it was read: %v", d.name, err)
		}
		closeStore() //nolint:errcheck // A damaged store may fail to close.
	}
	return o
}

var errSilent = errors.New("returned silently")

// compareStore reads everything and returns errSilent for wrong data without an
// error.
func compareStore(s raft.LogStore, wrote []*raft.Log) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	if first != wrote[0].Index || last != wrote[len(wrote)-1].Index {
		return fmt.Errorf("entries %d to %d: %w", first, last, errSilent)
	}
	var failed error
	for _, want := range wrote {
		var got raft.Log
		if err := s.GetLog(want.Index, &got); err != nil {
			failed = err
			continue
		}
		if got.Index != want.Index || got.Term != want.Term || got.Type != want.Type || !bytes.Equal(got.Data, want.Data) {
			return fmt.Errorf("entry %d: %w", want.Index, errSilent)
		}
	}
	return failed
}

// Values that mustImage writes besides entries.
const (
	imageTerm   = 9
	imageVote   = "10.0.0.1:6471"
	imageOwner  = "a cluster, and a node of it"
	imageValues = 4
)

// mustImage returns the used parts of a store's files, and its entries.
func mustImage(t *testing.T) (image, tail []byte, wrote []*raft.Log) {
	t.Helper()
	dir := t.TempDir()
	s := mustStore(t, dir)
	wrote = storedEntries(1, 400)
	mustStoreEntries(t, s, wrote)
	for term := range uint64(imageTerm) {
		if err := s.SetUint64([]byte("CurrentTerm"), term+1); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(s.SetOwner([]byte(imageOwner)), s.SetUint64([]byte("LastVoteTerm"), imageTerm),
		s.Set([]byte("LastVoteCand"), []byte(imageVote)), s.Close())
	if err != nil {
		t.Fatal(err)
	}
	if image, err = os.ReadFile(filepath.Join(dir, "raft.db")); err != nil {
		t.Fatal(err)
	}
	if tail, err = os.ReadFile(filepath.Join(dir, "tail")); err != nil {
		t.Fatal(err)
	}
	// Bolt makes the file larger than its used part; flips in unused space
	// prove nothing.
	return image[:(len(bytes.TrimRight(image, "\x00"))+4095)/4096*4096], tail, wrote
}

// mustHoldValues compares the values of a store with those of the image.
func mustHoldValues(t *testing.T, s *disk.Log, damage string) {
	t.Helper()
	term, err := s.GetUint64([]byte("CurrentTerm"))
	voted, err2 := s.GetUint64([]byte("LastVoteTerm"))
	candidate, err3 := s.Get([]byte("LastVoteCand"))
	if err := errors.Join(err, err2, err3); err != nil || term != imageTerm || voted != imageTerm ||
		string(candidate) != imageVote {
		t.Errorf("%s: the term came back as %d, the vote as %q in term %d, %v", damage, term, candidate, voted, err)
	}
}

// TestFlippedBitsAreNeverReturned damages a store at many places. Opening it
// returns everything that was written, or an error for damage, after which a
// server starts with an empty replica. With any other error it would not start.
func TestFlippedBitsAreNeverReturned(t *testing.T) {
	image, tail, wrote := mustImage(t)
	all := damages(image, *flipsFlag)
	open := func(t *testing.T, dir, damage string) (raft.LogStore, func() error, error) {
		if err := os.WriteFile(filepath.Join(dir, "tail"), tail, 0o600); err != nil {
			return nil, nil, err
		}
		s, err := disk.Open(dir, 0, func(error) {})
		if err != nil {
			if !disk.Damaged(err) {
				t.Errorf("%s: it is refused with %v", damage, err)
			}
			return nil, nil, err
		}
		mustHoldValues(t, s, damage)
		return s, s.Close, nil
	}
	ours := countOutcomes(t, image, wrote, all, open)
	t.Logf("ours: %+v of %d bytes", ours, len(image))
	if ours.silent > 0 {
		t.Errorf("%d of %d damages came back silently", ours.silent, len(all))
	}
	if ours.caughtRead > 0 {
		t.Errorf("%d of %d damages were not found when the store was opened", ours.caughtRead, len(all))
	}
	// The control: without checksums the same damages go unnoticed.
	bare := countOutcomes(t, image, wrote, all[:100], func(_ *testing.T, dir, _ string) (
		s raft.LogStore, done func() error, err error,
	) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("panic: %v", v)
			}
		}()
		b, err := raftboltdb.New(raftboltdb.Options{
			Path:        filepath.Join(dir, "raft.db"),
			BoltOptions: &bbolt.Options{ReadOnly: true},
		})
		if err != nil {
			return nil, nil, err
		}
		return b, b.Close, nil
	})
	t.Logf("bare raft-boltdb: %+v", bare)
	if bare.silent == 0 {
		t.Error("the control found nothing: the test cannot fail")
	}
}

func TestStoreKeepsEntriesAndValues(t *testing.T) {
	dir := t.TempDir()
	s := mustStore(t, dir)
	wrote := storedEntries(1, 100)
	mustStoreEntries(t, s, wrote)
	if err := s.SetUint64([]byte("CurrentTerm"), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get([]byte("LastVoteTerm")); err == nil || err.Error() != "not found" {
		t.Errorf("a missing value gives %v, raft wants \"not found\"", err)
	}
	err := errors.Join(s.SetUint64([]byte("LastVoteTerm"), 3), s.Set([]byte("LastVoteCand"), []byte("someone")))
	if err != nil {
		t.Fatal(err)
	}
	var entry raft.Log
	if err := s.GetLog(101, &entry); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("a missing entry gives %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustStore(t, dir)
	if err := compareStore(s, wrote); err != nil {
		t.Error(err)
	}
	if v, err := s.Get([]byte("LastVoteCand")); err != nil || string(v) != "someone" {
		t.Errorf("value %q, %v", v, err)
	}
	if v, err := s.GetUint64([]byte("CurrentTerm")); err != nil || v != 3 {
		t.Errorf("term %d, %v", v, err)
	}
}

func TestStoreDetectsALostTail(t *testing.T) {
	for _, test := range []struct {
		name    string
		lose    func(t *testing.T, dir string)
		corrupt bool
	}{
		{"the end vanished", func(t *testing.T, dir string) {
			b, err := raftboltdb.NewBoltStore(filepath.Join(dir, "raft.db"))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(b.DeleteRange(90, 100), b.Close()); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"an entry in the middle vanished", func(t *testing.T, dir string) {
			b, err := raftboltdb.NewBoltStore(filepath.Join(dir, "raft.db"))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(b.DeleteRange(50, 50), b.Close()); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"a leader overruled the end", func(t *testing.T, dir string) {
			s := mustStore(t, dir)
			if err := errors.Join(s.DeleteRange(90, 100), s.Close()); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"a snapshot replaced it all", func(t *testing.T, dir string) {
			s := mustStore(t, dir)
			if err := errors.Join(s.DeleteRange(1, 100), s.Close()); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"the mark is torn", func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "tail"), []byte("torn by a cut"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustStore(t, dir)
			mustStoreEntries(t, s, storedEntries(1, 100))
			if err := s.SetUint64([]byte("CurrentTerm"), 3); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			test.lose(t, dir)
			s, err := disk.Open(dir, 0, func(error) {})
			if err == nil {
				s.Close()
			}
			if errors.Is(err, disk.ErrCorrupt) != test.corrupt {
				t.Errorf("open gives %v", err)
			}
		})
	}
}

// TestSnapshotSupersedesTheLog checks that entries covered by a snapshot are
// removed if nothing or a gap follows them, and that any other gap is refused.
func TestSnapshotSupersedesTheLog(t *testing.T) {
	for _, test := range []struct {
		name        string
		covered     uint64
		gap         [2]uint64 // Missing entries.
		first, last uint64    // Indexes of the remaining log; 0 for a refusal.
	}{
		{"within the log", 90, [2]uint64{}, 1, 100},
		{"at its end", 100, [2]uint64{}, 1, 100},
		{"beyond its end", 101, [2]uint64{}, 0, 0},
		{"far beyond", 1 << 40, [2]uint64{}, 0, 0},
		{"a gap that it fills", 90, [2]uint64{50, 80}, 81, 100},
		{"a gap at its end", 90, [2]uint64{50, 90}, 91, 100},
		{"a gap beyond it", 90, [2]uint64{50, 91}, 1, 0},
		{"no snapshot", 0, [2]uint64{50, 50}, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustStore(t, dir)
			mustStoreEntries(t, s, storedEntries(1, 100))
			if err := errors.Join(s.SetUint64([]byte("CurrentTerm"), 3), s.Close()); err != nil {
				t.Fatal(err)
			}
			if test.gap[0] > 0 {
				b, err := raftboltdb.NewBoltStore(filepath.Join(dir, "raft.db"))
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(b.DeleteRange(test.gap[0], test.gap[1]), b.Close()); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // The second time the log is clean.
				s, err := disk.Open(dir, test.covered, func(err error) { t.Errorf("fatal: %v", err) })
				if refused := test.first > test.last; refused || err != nil {
					if errors.Is(err, disk.ErrCorrupt) != refused {
						t.Fatalf("open gives %v", err)
					}
					return
				}
				first, err1 := s.FirstIndex()
				last, err2 := s.LastIndex()
				if err := errors.Join(err1, err2, s.Close()); err != nil || first != test.first || last != test.last {
					t.Fatalf("entries %d to %d, %v; want %d to %d", first, last, err, test.first, test.last)
				}
			}
		})
	}
}

func TestGapBetweenSnapshotAndLog(t *testing.T) {
	for _, test := range []struct {
		name             string
		first            uint64
		covered, claimed uint64
		corrupt          bool
	}{
		{"nothing yet", 0, 0, 0, false},
		{"log from the start", 1, 0, 0, false},
		{"log without its snapshot", 90, 0, 0, true},
		{"log behind the snapshot", 101, 100, 100, false},
		{"log overlaps the snapshot", 50, 100, 100, false},
		{"newest unreadable, older reaches", 50, 60, 61, false},
		{"newest unreadable, older reaches, log too short", 50, 60, 62, true},
		{"newest unreadable, older too old", 90, 60, 100, true},
		{"none readable, log from the start", 1, 0, 11, false},
		{"none readable, log cleared", 0, 0, 100, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			logs := raft.NewInmemStore()
			if test.first > 0 {
				if err := logs.StoreLogs(storedEntries(test.first, test.first+11)); err != nil {
					t.Fatal(err)
				}
			}
			err := disk.CheckGap(logs, test.covered, test.claimed)
			if errors.Is(err, disk.ErrCorrupt) != test.corrupt {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestSupersededEntriesStayUntilDropped checks that the log is intact if the
// snapshot that superseded it belongs to another node.
func TestSupersededEntriesStayUntilDropped(t *testing.T) {
	dir := t.TempDir()
	s := mustStore(t, dir)
	mustStoreEntries(t, s, storedEntries(1, 100))
	if err := errors.Join(s.SetUint64([]byte("CurrentTerm"), 3), s.Close()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		covered, last uint64
		drop          bool
	}{{900, 0, false}, {0, 100, false}, {900, 0, true}, {0, 0, false}} {
		s, err := disk.Open(dir, test.covered, func(err error) { t.Errorf("fatal: %v", err) })
		if err != nil {
			t.Fatal(err)
		}
		if test.drop {
			err = s.DropSuperseded()
		}
		last, err2 := s.LastIndex()
		if err := errors.Join(err, err2, s.Close()); err != nil || last != test.last {
			t.Fatalf("with a snapshot that ends at %d it ends at %d, %v; want %d", test.covered, last, err, test.last)
		}
	}
}
