// Package storetest is for tests only: real servers of each kind of object store that
// package remote opens, with an empty bucket. Each keeps its data in a directory.
//
// The server for S3 is a library. The others are programs, which scripts/stores.sh
// installs.
package storetest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gocloud.dev/blob"

	"berth/node/objects/remote"
)

// BucketName is the name of the bucket of every server.
const BucketName = "berth"

// Kind is a kind of object store.
type Kind struct {
	Scheme string // Its URLs begin with it.

	// Start starts a server that ends with the test. The environment of this process gets
	// what its client needs.
	Start func(testing.TB) *Store

	// At returns the URL of a bucket at a host and port, and sets the environment for it.
	At func(tb testing.TB, host, bucket string) string
}

// Kinds returns the kinds of stores that this program can open: S3, which needs nothing
// installed, is the first.
func Kinds() []Kind {
	return slices.DeleteFunc([]Kind{s3(), azure(), google()}, func(k Kind) bool {
		return !slices.Contains(remote.Schemes(), k.Scheme)
	})
}

// Store is a running server with one bucket.
type Store struct {
	URL  string // The URL of the bucket, as package remote opens it.
	Host string // The host and port of the server.

	dir  string // Has the bytes of objects, in files.
	stop func() // Ends the server.
}

// Stop ends the server before the test does.
func (s *Store) Stop() { s.stop() }

// In returns the URL of a part of the bucket.
func (s *Store) In(prefix string) string {
	u, err := url.Parse(s.URL)
	if err != nil {
		panic(err) // It was made here.
	}
	query := u.Query()
	query.Set("prefix", prefix)
	u.RawQuery = query.Encode()
	return u.String()
}

// Count returns how many objects the bucket has in a directory.
func (s *Store) Count(tb testing.TB, dir string) (n int) {
	tb.Helper()
	bucket, err := blob.OpenBucket(tb.Context(), s.URL)
	if err != nil {
		tb.Fatal(err)
	}
	defer bucket.Close()
	for list := bucket.List(&blob.ListOptions{Prefix: dir + "/"}); ; n++ {
		if _, err := list.Next(tb.Context()); errors.Is(err, io.EOF) {
			return n
		} else if err != nil {
			tb.Fatal(err)
		}
	}
}

// Damage changes a byte in the file where the server keeps data, behind its back.
func (s *Store) Damage(tb testing.TB, data []byte) {
	tb.Helper()
	damaged := 0
	err := filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path) //nolint:gosec // A path of the test.
		at := bytes.Index(content, data)
		if err != nil || at < 0 {
			return err
		}
		damaged++
		content[at+len(data)/2] ^= 1
		return os.WriteFile(path, content, 0o600)
	})
	if err != nil || damaged == 0 {
		tb.Fatalf("%d files were damaged, %v", damaged, err)
	}
}
