package storage

import (
	"context"
	"crypto/md5" //nolint:gosec // ETags are MD5 sums; the cluster checks a SHA-256.
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/compute"
)

// moved is the result for one file, for --json.
type moved struct {
	Key  string `json:"key"`
	Path string `json:"path,omitempty"`
	Size int64  `json:"size"`
	ETag string `json:"etag,omitempty"`
	// Resumed is how many bytes an earlier try had moved already.
	Resumed int64  `json:"resumed,omitempty"`
	Action  string `json:"action"` // sent, fetched, deleted, copied.
}

// send stores a file of this machine under a key, and compares the ETag with the
// bytes that were read.
func (m *mover) send(ctx context.Context, name, key string) (moved, error) {
	info, err := os.Stat(name)
	if err != nil {
		return moved{}, err
	}
	if !info.Mode().IsRegular() {
		return moved{}, fmt.Errorf("%s is not a file; see berth storage sync", name)
	}
	if parts := m.pieces(info.Size()); parts != nil {
		file, err := os.Open(name)
		if err != nil {
			return moved{}, err
		}
		defer file.Close()
		done, err := m.sendParts(ctx, file, key, parts)
		if err != nil {
			return moved{}, fmt.Errorf("%s: %w", name, err)
		}
		done.Path = name
		return done, nil
	}
	release, err := m.take(ctx)
	if err != nil {
		return moved{}, err
	}
	defer release()
	sum := md5.New() //nolint:gosec // As above.
	out, err := m.Upload(ctx, client.NewFile{
		Key: key, Size: info.Size(),
		Open: func() (io.ReadCloser, error) {
			f, err := os.Open(name)
			if err != nil {
				return nil, err
			}
			sum.Reset()
			return &counted{ReadCloser: f, also: sum, bar: m.bar}, nil
		},
	})
	if err != nil {
		return moved{}, fmt.Errorf("%s: %w", name, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != out.ETag {
		return moved{}, fmt.Errorf("%s: the cluster has other bytes than were sent: send it again", name)
	}
	return moved{Key: key, Path: name, Size: out.Size, ETag: out.ETag, Action: "sent"}, nil
}

// counted counts what is read in a bar, and shows it to another writer.
type counted struct {
	io.ReadCloser
	also io.Writer
	bar  *cli.Bar
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.bar.Add(int64(n))
	_, _ = c.also.Write(p[:n]) // A hash.
	return n, err
}

// barWriter counts what is written in a bar.
type barWriter struct{ bar *cli.Bar }

func (w barWriter) Write(p []byte) (int, error) {
	w.bar.Add(int64(len(p)))
	return len(p), nil
}

// partName returns where a file of which a part has come is kept. Another version of
// the file has another one. The pattern partial matches it.
func partName(name, tag string, parts int) string {
	name += "." + tag[:min(len(tag), 12)]
	if parts > 0 {
		name += fmt.Sprint(".of", parts)
	}
	return name + ".part"
}

// fetch writes a stored file below a directory. It goes on with what an earlier try has
// left.
func (m *mover) fetch(ctx context.Context, f wire.File, root *os.Root, name string) (moved, error) {
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return moved{}, err
		}
	}
	parts := m.pieces(f.Size)
	part := partName(name, f.ETag, len(parts))
	file, err := root.OpenFile(part, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return moved{}, err
	}
	var resumed int64
	if parts != nil {
		resumed, err = m.fetchParts(ctx, f, file, parts)
	} else {
		resumed, err = m.fetchWhole(ctx, f, file)
	}
	whole := true
	if err == nil {
		var known bool
		whole, known, err = m.hasTag(file, f.Size, f.ETag)
		whole = whole || !known
	}
	err = errors.Join(err, file.Close())
	if err == nil && !whole {
		err = errors.Join(errors.New("what came is not what was stored: try again"), root.Remove(part))
	}
	if err == nil {
		err = root.Rename(part, name)
	}
	if err != nil {
		return moved{}, fmt.Errorf("%s: %w", f.Key, err)
	}
	to := filepath.Join(root.Name(), filepath.FromSlash(name))
	return moved{Key: f.Key, Path: to, Size: f.Size, ETag: f.ETag, Resumed: resumed, Action: "fetched"}, nil
}

// fetchWhole fetches what a file lacks at its end.
func (m *mover) fetchWhole(ctx context.Context, f wire.File, file *os.File) (resumed int64, err error) {
	release, err := m.take(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	resumed = min(info.Size(), f.Size)
	m.bar.Add(resumed)
	if resumed == f.Size {
		return resumed, file.Truncate(f.Size)
	}
	to := io.MultiWriter(io.NewOffsetWriter(file, resumed), barWriter{m.bar})
	_, err = m.Download(ctx, f.Key, f.ETag, resumed, to)
	return resumed, err
}

// list returns the stored files whose keys begin with a prefix.
func list(ctx context.Context, c *client.Client, prefix string) ([]wire.File, error) {
	var all []wire.File
	for cursor := ""; ; {
		page, next, err := c.Files(ctx, prefix, cursor, pageSize)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if cursor = next; next == "" {
			return all, nil
		}
	}
}

// pageSize is how many files a page of a list has.
const pageSize = 10_000

// find returns the stored file with a key.
func find(ctx context.Context, c *client.Client, key string) (wire.File, error) {
	page, _, err := c.Files(ctx, key, "", 1)
	if err != nil {
		return wire.File{}, err
	}
	if len(page) == 0 || page[0].Key != key {
		return wire.File{}, fmt.Errorf("there is no file %s; see berth storage ls", key)
	}
	return page[0], nil
}

// localName returns where a file with a key goes below a directory.
func localName(key, prefix string) (string, error) {
	name := strings.TrimPrefix(key, prefix)
	if why := compute.BadPath(name); why != "" {
		return "", fmt.Errorf("%q cannot be a file of this machine: %s", key, why)
	}
	return name, nil
}

// atOnce does several things at a time, the first error ends them.
func atOnce[T any](ctx context.Context, jobs int, items []T, do func(ctx context.Context, item T) error) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(jobs)
	for _, item := range items {
		group.Go(func() error { return do(within, item) })
	}
	return group.Wait()
}
