package storage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"berth/compute"
)

func TestSpreadStoresOnAllNodesThatAreUp(t *testing.T) {
	for _, test := range []struct {
		name           string
		down, refusing int // Out of five.
		least, copies  int
		code           compute.Code
	}{
		{name: "all are up", least: 3, copies: 5},
		{name: "two are down", down: 2, least: 3, copies: 3},
		{name: "two refuse", refusing: 2, least: 3, copies: 3},
		{name: "three are down", down: 3, least: 3, copies: 2, code: compute.CodeUnavailable},
		{name: "two are down, one refuses", down: 2, refusing: 1, least: 3, copies: 2, code: compute.CodeUnavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, 5, 2)
			for i := range test.down {
				c.list[4-i].Up = false
			}
			for i := range test.refusing {
				c.fault[nodeID(1+i)] = refuse
			}
			hash, err := c.nodes[nodeID(0)].Spread(t.Context(), []byte("an archive"), test.least)
			if got := len(c.have(hash)); got != test.copies || compute.CodeOf(err) != test.code && err != nil || (err != nil) != (test.code != "") {
				t.Errorf("%d copies, %v; want %d, code %q", got, err, test.copies, test.code)
			}
		})
	}
}

// TestFetchMissingBlob checks that a server that was down, or whose copy
// was damaged, has the blob after Fetch.
func TestFetchMissingBlob(t *testing.T) {
	c := newCluster(t, 3, 1)
	data := []byte("an archive")
	c.list[2].Up = false
	hash, err := c.nodes[nodeID(0)].Spread(t.Context(), data, 2)
	if err != nil {
		t.Fatal(err)
	}
	c.list[2].Up = true
	for range 2 {
		if err := c.nodes[nodeID(2)].Fetch(t.Context(), hash); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.nodes[nodeID(2)].cfg.Store.Get(hash); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the server that was down has %q, %v", got, err)
	}
	hash, err = c.nodes[nodeID(0)].Put(t.Context(), []byte("on one node"))
	if err != nil {
		t.Fatal(err)
	}
	order := owners(hash, c.list)
	third := c.nodes[order[2].ID]
	if err := third.FetchFrom(t.Context(), order[1].ID, hash); compute.CodeOf(err) != compute.CodeNotFound || third.Has(hash) {
		t.Errorf("from one that has none: %v, want not_found", err)
	}
	if err := third.FetchFrom(t.Context(), order[0].ID, hash); err != nil || !third.Has(hash) {
		t.Errorf("from the one that has it: %v", err)
	}
	err = c.nodes[nodeID(2)].Fetch(t.Context(), compute.Hash{1})
	if compute.CodeOf(err) != compute.CodeNotFound || errors.Is(err, ErrCorrupt) {
		t.Errorf("a blob that nobody has: %v, want not_found", err)
	}
}

// TestUnreadableBlobIsMissing checks that an unreadable file counts as a missing
// blob, and that a scrub and Fetch fetch the blob again, even on a node that is
// not an owner.
func TestUnreadableBlobIsMissing(t *testing.T) {
	unreadable := func(path string) error { // Its reads fail.
		return errors.Join(os.Remove(path), os.Symlink(t.TempDir(), path))
	}
	damaged := func(path string) error { // Its reads fail, and it cannot be set aside.
		quarantine := filepath.Join(filepath.Dir(path), "..", "..", "quarantine")
		return errors.Join(os.WriteFile(path, []byte("other bytes"), 0o600), os.WriteFile(quarantine, nil, 0o600))
	}
	scrub := func(b *Blobs, _ compute.Hash) error {
		_, _, err := b.Scrub(t.Context(), func(int) error { return nil })
		return err
	}
	fetch := func(b *Blobs, hash compute.Hash) error {
		if _, err := b.cfg.Store.Get(hash); err == nil {
			return errors.New("it was read")
		}
		if b.Has(hash) {
			return errors.New("what cannot be read is there")
		}
		return b.Fetch(t.Context(), hash)
	}
	for _, test := range []struct {
		name   string
		spoil  func(path string) error
		repair func(*Blobs, compute.Hash) error
	}{
		{"unreadable, scrub", unreadable, scrub},
		{"unreadable, fetch", unreadable, fetch},
		{"damaged, scrub", damaged, scrub},
		{"damaged, fetch", damaged, fetch},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, 3, 1)
			data := []byte("an archive")
			hash, err := c.nodes[nodeID(0)].Spread(t.Context(), data, 3)
			if err != nil {
				t.Fatal(err)
			}
			last := c.nodes[owners(hash, c.list)[2].ID]
			if err := test.spoil(last.cfg.Store.path(hash)); err != nil {
				t.Fatal(err)
			}
			if err := test.repair(last, hash); err != nil {
				t.Fatal(err)
			}
			if got, err := last.cfg.Store.Get(hash); err != nil || !bytes.Equal(got, data) || !last.Has(hash) {
				t.Errorf("it has %q, %v", got, err)
			}
		})
	}
}

// TestLackingListsOwnedBlobs checks that a node that joins lacks its share,
// and that the others lack the blobs of a node that leaves or is about to
// leave.
func TestLackingListsOwnedBlobs(t *testing.T) {
	c := newCluster(t, 4, 2)
	all := c.list
	c.list = all[:3]
	var hashes []compute.Hash
	for i := range 40 {
		hash, err := c.nodes[nodeID(0)].Put(t.Context(), fmt.Appendf(nil, "blob %d", i))
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, hash)
	}
	settle := func(what string, want bool, without ...compute.NodeID) {
		t.Helper()
		brought := 0
		for _, n := range c.list {
			if slices.Contains(without, n.ID) {
				continue
			}
			for _, hash := range c.nodes[n.ID].Lacking(t.Context(), slices.Values(slices.Concat(hashes, hashes)), without, nil) {
				brought++
				if err := c.nodes[n.ID].Fetch(t.Context(), hash); err != nil {
					t.Fatal(err)
				}
			}
		}
		if (brought > 0) != want {
			t.Errorf("%s: %d blobs were brought", what, brought)
		}
	}
	settle("as they were put", false)
	c.list[1].Up = false
	settle("one is down", false)
	c.list[1].Up = true
	c.list = all
	settle("one has joined", true)
	settle("again", false)
	c.list = all[1:]
	settle("one has left", true)
	settle("another is to leave", true, all[1].ID)
	c.list = all[2:]
	settle("it has left", false)
	for _, hash := range hashes {
		if len(c.have(hash)) != 2 {
			t.Errorf("a blob is on %d of the two that are left", len(c.have(hash)))
		}
	}
}

// TestPutAvoidsLeavingNodes checks that a blob is put on nodes that stay, unless
// they are too few.
func TestPutAvoidsLeavingNodes(t *testing.T) {
	c := newCluster(t, 4, 2)
	c.list[1].Leaving = true
	for down := range 3 {
		if down > 0 {
			c.list[1+down].Up = false
		}
		for i := range 10 {
			hash, err := c.nodes[nodeID(0)].Put(t.Context(), fmt.Appendf(nil, "blob %d of %d", i, down))
			if on := slices.Contains(c.have(hash), nodeID(1)); err != nil || len(c.have(hash)) != 2 || on != (down == 2) {
				t.Errorf("%d down: on %v, %v", down, c.have(hash), err)
			}
		}
	}
}
