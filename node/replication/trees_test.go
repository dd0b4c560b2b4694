package replication

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/node/trees"
)

// tree stores a chunk and a manifest that names it, and records them as a bundle.
func (f *servers) tree(text string) (manifest, chunk compute.Hash) {
	f.t.Helper()
	put := func(data []byte) compute.Hash {
		hash, err := f.blobs[f.ids[0]].Put(f.t.Context(), data)
		if err != nil {
			f.t.Fatal(err)
		}
		return hash
	}
	chunk = put([]byte(text))
	tree := &compute.Tree{Entries: []compute.TreeEntry{
		{Path: "f", Size: int64(len(text)), Chunks: []compute.Digest{compute.Digest(chunk)}},
	}}
	data, err := tree.Encode()
	if err != nil {
		f.t.Fatal(err)
	}
	manifest = put(data)
	u := compute.Upload{ID: compute.BundleID{UUID: manifestID(manifest)}, Manifest: manifest, Chunks: 1, Have: []byte{1}}
	f.Must(command.CreateUpload{Op: f.NextOp(), Actor: f.Actor, Upload: u})
	return manifest, chunk
}

func manifestID(manifest compute.Hash) (id compute.UUID) {
	copy(id[:], manifest[:])
	return id
}

// TestTreesAreKept checks that the chunks of live manifests are neither swept nor
// lost, and that nothing is swept while a manifest cannot be read.
func TestTreesAreKept(t *testing.T) {
	f := newServers(t, 2, 2)
	f.Must(command.SetFormat{Term: 1, Format: format.Newest})
	manifest, chunk := f.tree("a file")
	orphan := func(text string) compute.Hash {
		hash, err := f.blobs[f.ids[0]].Put(t.Context(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	sweep := func() {
		for _, id := range f.ids {
			h := &Housekeeper{
				Read:  func(context.Context) (*fsm.View, error) { return f.Machine.View(), nil },
				Blobs: f.blobs[id], Trees: trees.New(f.blobs[id].Get), Objects: &storedObjects{}, Repairer: f.repairers[id], Logger: slog.New(slog.DiscardHandler),
			}
			h.Sweep(t.Context(), -time.Hour)
		}
	}
	first := orphan("nobody's")
	sweep()
	if f.copies(first, f.ids) != 0 || f.copies(manifest, f.ids) != 2 || f.copies(chunk, f.ids) != 2 {
		t.Errorf("left are %d orphans, %d manifests and %d chunks", f.copies(first, f.ids), f.copies(manifest, f.ids), f.copies(chunk, f.ids))
	}
	for _, lost := range []compute.Hash{chunk, manifest} {
		f.dropOn(f.ids[1], lost)
	}
	f.now = f.now.Add(bundlePeriod)
	f.scanAll()
	if f.copies(manifest, f.ids) != 2 || f.copies(chunk, f.ids) != 2 {
		t.Errorf("repaired are %d manifests and %d chunks", f.copies(manifest, f.ids), f.copies(chunk, f.ids))
	}
	second := orphan("somebody's, perhaps")
	f.dropOn(f.ids[0], manifest)
	f.dropOn(f.ids[1], manifest)
	sweep()
	if f.copies(second, f.ids) != 2 || f.copies(chunk, f.ids) != 2 {
		t.Error("blobs are swept although a manifest cannot be read")
	}
}

// dropOn removes a blob from the disk of one server, as a bad sector does.
func (f *servers) dropOn(id compute.NodeID, lost compute.Hash) {
	f.t.Helper()
	_, err := f.blobs[id].Sweep(func(hash compute.Hash) bool { return hash != lost }, -time.Hour)
	if err != nil {
		f.t.Fatal(err)
	}
}

// storedObjects has the blobs that objects need, and why they are not known.
type storedObjects struct {
	blobs []compute.Hash
	err   error
}

func (o *storedObjects) Live(_ context.Context, _ *fsm.View, live map[compute.Hash]bool) (int, error) {
	for _, hash := range o.blobs {
		live[hash] = true
	}
	if o.err != nil {
		return 1, o.err
	}
	return 0, nil
}

// TestObjectsAreKept checks that the blobs of objects are neither swept nor lost, and
// that nothing is swept while it is not known which they are.
func TestObjectsAreKept(t *testing.T) {
	f := newServers(t, 2, 2)
	put := func(text string) compute.Hash {
		hash, err := f.blobs[f.ids[0]].Put(t.Context(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	chunk := put("chunk of an object")
	stored := &storedObjects{blobs: []compute.Hash{chunk}}
	sweep := func() {
		for _, id := range f.ids {
			h := &Housekeeper{
				Read:  func(context.Context) (*fsm.View, error) { return f.Machine.View(), nil },
				Blobs: f.blobs[id], Trees: trees.New(f.blobs[id].Get), Objects: stored, Repairer: f.repairers[id], Logger: slog.New(slog.DiscardHandler),
			}
			h.Sweep(t.Context(), -time.Hour)
		}
	}
	orphan := put("nobody's")
	sweep()
	if f.copies(orphan, f.ids) != 0 || f.copies(chunk, f.ids) != 2 {
		t.Errorf("left are %d orphans and %d chunks", f.copies(orphan, f.ids), f.copies(chunk, f.ids))
	}
	f.dropOn(f.ids[1], chunk)
	f.now = f.now.Add(bundlePeriod)
	f.repairers[f.ids[1]].objects = stored
	f.scanAll()
	if f.copies(chunk, f.ids) != 2 {
		t.Errorf("repaired are %d chunks", f.copies(chunk, f.ids))
	}
	orphan = put("somebody's, perhaps")
	stored.err = compute.Errorf(compute.CodeUnavailable, "a server is down")
	sweep()
	if f.copies(orphan, f.ids) != 2 {
		t.Error("blobs are swept although it is not known which ones objects need")
	}
}
