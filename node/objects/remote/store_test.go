package remote_test

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/node/objects/remote"
	"berth/node/objects/remote/storetest"
	"berth/testsize"
)

func open(t *testing.T, url, mark string, now func() time.Time) *remote.Store {
	t.Helper()
	s, err := remote.Open(t.Context(), url, mark, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// each executes a test with every kind of store. In the short form that is S3, whose server
// is a library.
func each(t *testing.T, test func(*testing.T, storetest.Kind, *storetest.Store)) {
	kinds := storetest.Kinds()
	for _, kind := range testsize.Pick(kinds[:1], kinds) {
		t.Run(kind.Scheme, func(t *testing.T) { test(t, kind, kind.Start(t)) })
	}
}

// TestStore keeps blobs in real stores, and finds those that they damaged.
func TestStore(t *testing.T) {
	each(t, func(t *testing.T, _ storetest.Kind, server *storetest.Store) {
		s := open(t, server.In("a/"), "mine", time.Now)
		data := bytes.Repeat([]byte("blob"), 1<<20)
		hash, err := s.Put(t.Context(), data)
		if err != nil || hash != compute.Hash(sha256.Sum256(data)) {
			t.Fatalf("put %x, %v", hash, err)
		}
		if got, err := s.Get(t.Context(), hash); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes came, %v", len(got), err)
		}
		if has, err := s.Has(t.Context(), hash); !has || err != nil {
			t.Errorf("it has it: %t, %v", has, err)
		}
		if all, err := s.All(t.Context()); len(all) != 1 || !all[hash] || err != nil {
			t.Errorf("all: %v, %v", all, err)
		}
		if n := server.Count(t, "a/blobs"); n != 1 {
			t.Errorf("below the prefix are %d blobs", n)
		}
		if _, err := s.Get(t.Context(), compute.Hash{1}); compute.CodeOf(err) != compute.CodeNotFound {
			t.Errorf("a blob that is not there: %v", err)
		}
		if has, err := s.Has(t.Context(), compute.Hash{1}); has || err != nil {
			t.Errorf("it has one: %t, %v", has, err)
		}
		server.Damage(t, data)
		if got, err := s.Get(t.Context(), hash); compute.CodeOf(err) != compute.CodeUnavailable {
			t.Errorf("other bytes: %d, %v", len(got), err)
		}
		foreign := open(t, server.In("a/"), "yours", time.Now)
		if _, err := foreign.Put(t.Context(), data); compute.CodeOf(err) != compute.CodeConflict {
			t.Errorf("another cluster's: %v", err)
		}
		if _, _, err := foreign.Sweep(t.Context(), func(compute.Hash) bool { return false }, 0); compute.CodeOf(err) != compute.CodeConflict {
			t.Errorf("another cluster's is swept: %v", err)
		}
		beside := open(t, server.In("b/"), "yours", time.Now)
		if _, err := beside.Put(t.Context(), data); err != nil {
			t.Errorf("another cluster beside it: %v", err)
		}
	})
}

// TestSweep deletes blobs that are not live in two steps, and moves back those that are
// live again.
func TestSweep(t *testing.T) {
	each(t, func(t *testing.T, _ storetest.Kind, server *storetest.Store) {
		now := time.Now()
		s := open(t, server.URL, "mine", func() time.Time { return now })
		var hashes []compute.Hash
		for _, text := range []string{"live", "dead", "late"} {
			h, err := s.Put(t.Context(), []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			hashes = append(hashes, h)
		}
		live := map[compute.Hash]bool{hashes[0]: true}
		sweep := func(moved, deleted int) {
			t.Helper()
			m, d, err := s.Sweep(t.Context(), func(h compute.Hash) bool { return live[h] }, time.Hour)
			if err != nil || m != moved || d != deleted {
				t.Errorf("%d moved and %d deleted, want %d and %d, %v", m, d, moved, deleted, err)
			}
		}
		sweep(0, 0) // All are young.
		now = now.Add(2 * time.Hour)
		sweep(2, 0)
		if got, err := s.Get(t.Context(), hashes[2]); err != nil || string(got) != "late" {
			t.Errorf("in the trash it is %q, %v", got, err)
		}
		live[hashes[2]] = true // Its object was published meanwhile.
		now = now.Add(2 * time.Hour)
		sweep(0, 1)
		all, err := s.All(t.Context())
		if err != nil || len(all) != 2 || !all[hashes[0]] || !all[hashes[2]] {
			t.Errorf("left are %v, %v", all, err)
		}
		if _, err := s.Get(t.Context(), hashes[1]); compute.CodeOf(err) != compute.CodeNotFound {
			t.Errorf("deleted: %v", err)
		}
	})
}

// TestAgeInTrash has the store say when a blob came to the trash, and not when it was put.
func TestAgeInTrash(t *testing.T) {
	each(t, func(t *testing.T, _ storetest.Kind, server *storetest.Store) {
		copies := open(t, server.URL, "mine", time.Now).Copies()
		put := func(name compute.Hash) time.Time {
			t.Helper()
			if err := copies.Put(t.Context(), name, []byte{name[0]}); err != nil {
				t.Fatal(err)
			}
			all, err := copies.All(t.Context())
			if err != nil || all[name].IsZero() {
				t.Fatalf("put at %v, %v", all, err)
			}
			return all[name]
		}
		first := put(compute.Hash{1})
		later := first
		for !later.After(first) { // The times of S3 and Azure are in seconds.
			later = put(compute.Hash{2})
		}
		if err := copies.Discard(t.Context(), compute.Hash{1}); err != nil {
			t.Fatal(err)
		}
		trash, err := copies.Trash(t.Context())
		if at := trash[compute.Hash{1}]; err != nil || at.Before(later) {
			t.Errorf("put at %v, it came to the trash at %v, %v", first, at, err)
		}
	})
}

// TestCheck refuses URLs that are not valid.
func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		"s3://bucket?region=eu-west-1": "", "azblob://container": "",
		"": "schemes", "ftp://x": "schemes", "file:///tmp": "schemes", "mem://x": "schemes", "s3://": "no bucket",
		"s3://key:secret@bucket": "secrets", "s3://%zz": "not a URL",
	} {
		if err := remote.Check(text); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestNamedCopies keeps data under other names beside blobs, which sweeps leave alone.
func TestNamedCopies(t *testing.T) {
	each(t, func(t *testing.T, _ storetest.Kind, server *storetest.Store) {
		s := open(t, server.In("a/"), "mine", time.Now)
		copies, name := s.Copies(), compute.Hash{1}
		if all, err := copies.All(t.Context()); len(all) != 0 || err != nil {
			t.Errorf("at first: %v, %v", all, err)
		}
		if err := copies.Put(t.Context(), name, []byte("sealed")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, _, err := s.Sweep(t.Context(), func(compute.Hash) bool { return false }, -time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := copies.Get(t.Context(), name); err != nil || string(got) != "sealed" {
			t.Errorf("got %q, %v", got, err)
		}
		if all, err := copies.All(t.Context()); len(all) != 1 || all[name].IsZero() || err != nil {
			t.Errorf("listed: %v, %v", all, err)
		}
		if _, err := s.Get(t.Context(), name); compute.CodeOf(err) != compute.CodeNotFound {
			t.Errorf("it is no blob: %v", err)
		}
		if err := copies.Discard(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		all, err := copies.All(t.Context())
		trash, trashErr := copies.Trash(t.Context())
		if len(all) != 0 || len(trash) != 1 || err != nil || trashErr != nil {
			t.Errorf("discarded: %v, %v, %v, %v", all, trash, err, trashErr)
		}
		if got, err := copies.Get(t.Context(), name); err != nil || string(got) != "sealed" {
			t.Errorf("from the trash: %q, %v", got, err)
		}
		if err := copies.Restore(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if all, err := copies.All(t.Context()); len(all) != 1 || err != nil {
			t.Errorf("restored: %v, %v", all, err)
		}
		if err := copies.Discard(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := copies.Delete(t.Context(), name); err != nil {
				t.Error(err)
			}
		}
		if _, err := copies.Get(t.Context(), name); compute.CodeOf(err) != compute.CodeNotFound {
			t.Errorf("deleted: %v", err)
		}
		foreign := open(t, server.In("a/"), "yours", time.Now).Copies()
		for what, err := range map[string]error{
			"delete": foreign.Delete(t.Context(), name), "discard": foreign.Discard(t.Context(), name),
			"put": foreign.Put(t.Context(), name, nil),
		} {
			if compute.CodeOf(err) != compute.CodeConflict {
				t.Errorf("%s in another cluster's: %v", what, err)
			}
		}
	})
}
