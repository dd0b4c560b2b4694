package replication

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/time/rate"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/node/trees"
)

// smallDisk returns an empty file system of 1 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small disk")
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all space of a disk. free gives it back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	if err := os.WriteFile(path, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling a disk: %v", err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// below counts the blobs of which fewer than two of ids have a copy.
func (f *servers) below(hashes []compute.Hash, ids []compute.NodeID) (n int) {
	for _, hash := range hashes {
		if f.copies(hash, ids) < 2 {
			n++
		}
	}
	return n
}

// remains counts the copies of blobs on ids.
func (f *servers) remains(hashes []compute.Hash, ids []compute.NodeID) (n int) {
	for _, hash := range hashes {
		n += f.copies(hash, ids)
	}
	return n
}

// sweep has a server collect blobs, of any age.
func (f *servers) sweep(id compute.NodeID) {
	h := &Housekeeper{
		Read:  func(context.Context) (*fsm.View, error) { return f.Machine.View(), nil },
		Blobs: f.blobs[id], Trees: trees.New(f.blobs[id].Get), Objects: &storedObjects{}, Repairer: f.repairers[id],
		Logger: slog.New(slog.DiscardHandler),
	}
	h.Sweep(f.t.Context(), -time.Hour)
}

// lose removes a server.
func (f *servers) lose(id compute.NodeID) {
	f.setSilent(true, id)
	f.Must(command.SetNodeState{Term: 1, Node: id, State: compute.NodeDown})
	f.Must(command.RemoveNode{Op: f.NextOp(), Actor: command.Actor{Root: true}, Node: id})
}

// TestNextServerTakesTheShareOfAFullOne loses a server of four while the disk of another is
// full: the copies that this one cannot take go to the next in the order. Once it has
// space it has its share again, and the others give theirs back.
func TestNextServerTakesTheShareOfAFullOne(t *testing.T) {
	dirs := []string{t.TempDir(), smallDisk(t), smallDisk(t), smallDisk(t)}
	f := newServersOn(t, 4, 2, func(i int) string { return dirs[i] })
	hashes := f.code(20)
	stay, full := f.ids[1:], f.repairers[f.ids[1]]
	free := fill(t, dirs[1])
	f.lose(f.ids[0])
	for _, id := range []compute.NodeID{f.ids[1], f.ids[2], f.ids[3]} { // The full one has tried when the others scan.
		f.repairers[id].scan(t.Context())
	}
	if n := f.below(hashes, stay); n != 0 {
		t.Errorf("%d of %d blobs have one copy", n, len(hashes))
	}
	if was := testutil.ToFloat64(full.metrics.full); was != 1 {
		t.Errorf("the full disk is reported as %g", was)
	}
	f.now = f.now.Add(fullPeriod)
	full.scan(t.Context())
	if n, lacks := testutil.ToFloat64(full.metrics.unplaced), full.lacks; n != 0 || !lacks.None() {
		t.Errorf("others have the copies: %g have no place, and it lacks %+v", n, lacks)
	}
	for _, id := range stay {
		f.sweep(id)
	}
	if n := f.below(hashes, stay); n != 0 {
		t.Errorf("after a sweep %d of %d blobs have one copy", n, len(hashes))
	}
	free()
	full.scan(t.Context()) // It has space, and fetches its share at once.
	if was := testutil.ToFloat64(full.metrics.full); was != 0 {
		t.Errorf("the disk with space is reported as %g", was)
	}
	if n := f.remains(hashes, stay); n == 2*len(hashes) {
		t.Error("it has not its share, or the others had taken none")
	}
	for _, id := range stay {
		f.sweep(id)
	}
	if n, below := f.remains(hashes, stay), f.below(hashes, stay); n != 2*len(hashes) || below != 0 {
		t.Errorf("of %d blobs %d copies stay, %d have one", len(hashes), n, below)
	}
}

// TestNoServerHasSpace holds that copies for which no server has space are counted.
func TestNoServerHasSpace(t *testing.T) {
	dirs := []string{t.TempDir(), smallDisk(t), smallDisk(t), smallDisk(t)}
	f := newServersOn(t, 4, 2, func(i int) string { return dirs[i] })
	hashes := f.code(20)
	f.lose(f.ids[0])
	for _, dir := range dirs[1:] {
		defer fill(t, dir)()
	}
	f.scanAll()
	f.scanAll()
	unplaced := 0.0
	for _, id := range f.ids[1:] {
		k := f.repairers[id]
		unplaced += testutil.ToFloat64(k.metrics.unplaced)
		if n := testutil.ToFloat64(k.metrics.unplaced); n > 0 && (k.lacks.None() || testutil.ToFloat64(k.metrics.missing) < n) {
			t.Errorf("%g have no place, and it lacks %+v", n, k.lacks)
		}
	}
	if n := f.below(hashes, f.ids[1:]); n == 0 || unplaced < float64(n) {
		t.Errorf("%d of %d blobs have one copy, %g are counted", n, len(hashes), unplaced)
	}
}

// TestCopiesMoveToAServerThatJoins has a server join three: its share is copied to it, and the
// others remove what they no longer own, all at the same time. Each blob is then on as many servers as
// it was, and every read on the way finds it.
func TestCopiesMoveToAServerThatJoins(t *testing.T) {
	f := newServers(t, 3, 2)
	before := f.ids
	hashes := f.code(40)
	f.scanAll()
	for _, id := range before {
		f.sweep(id)
	}
	if n := f.remains(hashes, before); n != 80 {
		t.Fatalf("%d copies before", n)
	}
	f.add(2, t.TempDir())
	joined := f.ids[3]
	for _, id := range before {
		f.sweep(id) // The new server has nothing yet.
	}
	if n := f.remains(hashes, before); n != 80 {
		t.Fatalf("%d copies before the new server has its own", n)
	}
	done := make(chan struct{})
	var readers, movers sync.WaitGroup
	for _, id := range f.ids {
		readers.Go(func() {
			for {
				for _, hash := range hashes {
					if _, err := f.blobs[id].Get(t.Context(), hash); err != nil {
						t.Errorf("a read from %s: %v", id, err)
					}
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	f.scanAll()
	own := f.remains(hashes, []compute.NodeID{joined})
	for _, id := range f.ids {
		movers.Go(func() { f.sweep(id) })
	}
	movers.Wait()
	close(done)
	readers.Wait()
	for _, id := range f.ids {
		f.sweep(id) // A reader may have put a copy back that was on its way.
	}
	if own == 0 || f.remains(hashes, []compute.NodeID{joined}) != own {
		t.Errorf("the new server had %d copies and has %d", own, f.remains(hashes, []compute.NodeID{joined}))
	}
	if n, below := f.remains(hashes, f.ids), f.below(hashes, f.ids); n != 80 || below != 0 {
		t.Errorf("there are %d copies, and %d blobs have one", n, below)
	}
}

// TestTrimKeepsCopies holds that a copy stays that another server may need: while its owners are
// down, do not answer, are drained or about to leave, or while it is young.
func TestTrimKeepsCopies(t *testing.T) {
	for _, test := range []struct {
		name   string
		minAge time.Duration
		before func(f *servers)
		goes   bool
	}{
		{"its owners have it", -time.Hour, func(*servers) {}, true},
		{"it is young", time.Hour, func(*servers) {}, false},
		{"an owner is down", -time.Hour, func(f *servers) {
			f.Must(command.SetNodeState{Term: 1, Node: f.ids[1], State: compute.NodeDown})
		}, false},
		{"an owner does not answer", -time.Hour, func(f *servers) { f.setSilent(true, f.ids[1]) }, false},
		{"an owner is drained", -time.Hour, func(f *servers) {
			f.Must(command.DrainNode{Op: f.NextOp(), Actor: command.Actor{Root: true}, Node: f.ids[1], Drained: true})
		}, false},
		{"an owner is about to leave", -time.Hour, func(f *servers) {
			ended, cancel := context.WithCancel(f.t.Context())
			cancel()
			f.repairers[f.ids[2]].Wait(ended, f.ids[1], nil)
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newServers(t, 3, 2)
			hash := f.last(f.ids[2])
			test.before(f)
			n, err := f.repairers[f.ids[2]].Trim(t.Context(), slices.Values([]compute.Hash{hash}), test.minAge)
			if want := f.blobs[f.ids[2]].Has(hash); err != nil || (n == 1) != test.goes || want == test.goes {
				t.Errorf("%d go, %v; it is there: %t", n, err, want)
			}
		})
	}
}

// last returns a blob that all servers have and of which id is the last owner.
func (f *servers) last(id compute.NodeID) compute.Hash {
	f.t.Helper()
	for i := range 100 {
		hash, err := f.blobs[f.ids[0]].Spread(f.t.Context(), []byte{byte(i)}, len(f.ids))
		if err != nil {
			f.t.Fatal(err)
		}
		if len(f.blobs[id].Surplus(slices.Values([]compute.Hash{hash}))) == 1 {
			return hash
		}
	}
	f.t.Fatal("it is an owner of all")
	return compute.Hash{}
}

// TestScanEndsForANewerOne ends a scan that fetches a server's share when somebody waits for a
// new one, which goes on where it ended.
func TestScanEndsForANewerOne(t *testing.T) {
	f := newServers(t, 1, 1)
	f.code(40)
	f.add(1, t.TempDir())
	k := f.repairers[f.ids[1]]
	k.wake <- struct{}{}
	k.scan(t.Context())
	before := k.lacks.Bundles
	<-k.wake
	k.scan(t.Context())
	if before == 0 || k.lacks.Bundles != 0 {
		t.Errorf("%d blobs are left, and then %d", before, k.lacks.Bundles)
	}
}

// TestRepairIsThrottled holds that a server fetches its share at no more than a rate.
func TestRepairIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newServers(t, 1, 1)
		hashes := f.code(40)
		f.add(1, t.TempDir())
		k, bytes := f.repairers[f.ids[1]], 0
		for _, hash := range f.blobs[f.ids[1]].Lacking(t.Context(), slices.Values(hashes), nil, nil) {
			bytes += f.blobs[f.ids[0]].Size(hash)
		}
		k.limit = rate.NewLimiter(100, 100)
		start := time.Now()
		k.scan(t.Context())
		if took, least := time.Since(start), time.Duration(bytes-100)*10*time.Millisecond; took < least || bytes < 200 {
			t.Errorf("%d bytes took %s, want at least %s", bytes, took, least)
		}
	})
}
