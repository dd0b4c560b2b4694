package remote

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob://
	_ "gocloud.dev/blob/s3blob"    // s3://

	"berth/compute"
)

// Schemes returns the schemes of URLs that this program can open.
func Schemes() []string {
	return slices.DeleteFunc(blob.DefaultURLMux().BucketSchemes(), func(s string) bool {
		return s != "s3" && s != "azblob" && s != "gs"
	})
}

// Check returns an error that says why the URL of a store is not valid.
func Check(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("it is not a URL")
	case !slices.Contains(Schemes(), u.Scheme):
		return fmt.Errorf("%q is none of the schemes %s (gs needs a program from make build TAGS=gcs)",
			u.Scheme, strings.Join(Schemes(), ", "))
	case u.Host == "":
		return errors.New("it names no bucket")
	case u.User != nil:
		return errors.New("secrets come from the environment or a file, as the SDK of the store reads them")
	}
	return nil
}

// markName is the object that says whose the store is.
const markName = "berth-cluster"

// Open opens the store at a URL, as gocloud.dev/blob reads it. It does not reach for it
// yet. The mark is the same for all nodes of a cluster.
func Open(ctx context.Context, text, mark string, now func() time.Time) (*Store, error) {
	if err := Check(text); err != nil {
		return nil, fmt.Errorf("open object store: %w", err)
	}
	u, err := url.Parse(text)
	if err == nil {
		err = findGoogle(ctx, u)
	}
	if err != nil {
		return nil, fmt.Errorf("open object store: %w", err)
	}
	bucket, err := blob.OpenBucket(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("open object store: %w", err)
	}
	return &Store{bucket: bucket, mark: mark, now: now}, nil
}

// claim checks that the store is this cluster's, and marks it if it is nobody's.
func (s *Store) claim(ctx context.Context) error {
	s.mu.Lock()
	claimed := s.claimed
	s.mu.Unlock()
	if claimed {
		return nil
	}
	if err := s.reach(ctx); err != nil {
		return err
	}
	found, err := s.bucket.ReadAll(ctx, markName)
	if absent(err) {
		err = s.bucket.WriteAll(ctx, markName, []byte(s.mark), nil)
		found = []byte(s.mark)
	}
	if err != nil {
		return failed("mark", err)
	}
	if string(found) != s.mark {
		return compute.Errorf(compute.CodeConflict,
			"The object store belongs to another cluster: give this one a bucket, or a prefix, of its own.")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed = true
	return nil
}
