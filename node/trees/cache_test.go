package trees_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"

	"berth/compute"
	"berth/node/trees"
)

// blobs are manifests by hash. It counts how often they are read.
type blobs struct {
	data  map[compute.Hash][]byte
	reads int
}

func (b *blobs) get(_ context.Context, hash compute.Hash) ([]byte, error) {
	b.reads++
	if data, ok := b.data[hash]; ok {
		return data, nil
	}
	return nil, compute.Errorf(compute.CodeUnavailable, "not now")
}

// add stores the manifest of a file of each chunk, many times over.
func (b *blobs) add(t *testing.T, files int, chunks ...byte) compute.Hash {
	t.Helper()
	tree := &compute.Tree{}
	for i := range files {
		e := compute.TreeEntry{Path: fmt.Sprint("f", i), Size: 1}
		e.Chunks = []compute.Digest{{chunks[i%len(chunks)]}}
		tree.Entries = append(tree.Entries, e)
	}
	data, err := tree.Encode()
	if err != nil {
		t.Fatal(err)
	}
	hash := compute.Hash(sha256.Sum256(data))
	b.data[hash] = data
	return hash
}

// TestLive checks which blobs manifests need, and that one which cannot be read
// is reported and not forgotten.
func TestLive(t *testing.T) {
	b := &blobs{data: map[compute.Hash][]byte{}}
	one, two := b.add(t, 3, 1, 2), b.add(t, 2, 2, 3)
	lost, damaged := compute.Hash{9}, compute.Hash{8}
	b.data[damaged] = []byte("no manifest")
	c := trees.New(b.get)
	live, unread := c.Live(t.Context(), slices.Values([]compute.Hash{one, two, one, lost, damaged}))
	if len(live) != 7 || len(unread) != 2 || unread[0].Manifest != lost || compute.CodeOf(unread[0].Err) != compute.CodeUnavailable {
		t.Errorf("live are %v, unread %v", live, unread)
	}
	for _, hash := range []compute.Hash{one, two, lost, damaged, {1}, {2}, {3}} {
		if !live[hash] {
			t.Errorf("%x is not live", hash[:2])
		}
	}
	if numbers, err := c.Numbers(t.Context(), one); err != nil || len(numbers) != 2 || numbers[compute.Hash{2}] != 1 {
		t.Errorf("numbers are %v, %v", numbers, err)
	}
	if b.reads != 4 {
		t.Errorf("manifests are read %d times", b.reads)
	}
}

// TestCacheIsBounded checks that the trees used longest ago are read again.
func TestCacheIsBounded(t *testing.T) {
	b := &blobs{data: map[compute.Hash][]byte{}}
	c := trees.New(b.get)
	var all []compute.Hash
	for i := range 6 {
		all = append(all, b.add(t, compute.MaxTreeEntries-i, 1))
	}
	for _, hash := range append(all, all[5], all[0]) {
		if tree, err := c.Tree(t.Context(), hash); err != nil || len(tree.Entries) < compute.MaxTreeEntries-5 {
			t.Fatal(err)
		}
	}
	if b.reads != 7 { // Only the first again.
		t.Errorf("manifests are read %d times", b.reads)
	}
}
