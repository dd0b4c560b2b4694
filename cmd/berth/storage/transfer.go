package storage

import (
	"context"
	"crypto/md5" //nolint:gosec // What an ETag is; the cluster checks a SHA-256.
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

// moved is what became of one file, for --json.
type moved struct {
	Key    string `json:"key"`
	Path   string `json:"path,omitempty"`
	Size   int64  `json:"size"`
	ETag   string `json:"etag,omitempty"`
	Action string `json:"action"` // sent, fetched, deleted, copied.
}

// sumOf returns the MD5 of a file.
func sumOf(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := md5.New() //nolint:gosec // As above.
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// send stores a file of this machine under a key, and compares the ETag of what came
// with what was read.
func send(ctx context.Context, c *client.Client, name, key string, bar *cli.Bar) (moved, error) {
	info, err := os.Stat(name)
	if err != nil {
		return moved{}, err
	}
	if !info.Mode().IsRegular() {
		return moved{}, fmt.Errorf("%s is no file; see berth storage sync", name)
	}
	sum := md5.New() //nolint:gosec // As above.
	out, err := c.Upload(ctx, client.NewFile{
		Key: key, Size: info.Size(),
		Open: func() (io.ReadCloser, error) {
			f, err := os.Open(name)
			if err != nil {
				return nil, err
			}
			sum.Reset()
			return &counted{ReadCloser: f, also: sum, bar: bar}, nil
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
// the file has another one.
func partName(name, tag string) string { return name + "." + tag[:min(len(tag), 12)] + ".part" }

// fetch writes a stored file below a directory. It goes on with a part that an earlier
// try has left.
func fetch(
	ctx context.Context, c *client.Client, f wire.File, root *os.Root, name string, bar *cli.Bar,
) (moved, error) {
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return moved{}, err
		}
	}
	part := partName(name, f.ETag)
	file, err := root.OpenFile(part, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return moved{}, err
	}
	sum := md5.New() //nolint:gosec // As above.
	have, err := io.Copy(io.MultiWriter(sum, barWriter{bar}), io.LimitReader(file, f.Size))
	if err == nil && have < f.Size {
		_, err = c.Download(ctx, f.Key, f.ETag, have, io.MultiWriter(file, sum, barWriter{bar}))
	}
	err = errors.Join(err, file.Close())
	whole := strings.Contains(f.ETag, "-") || hex.EncodeToString(sum.Sum(nil)) == f.ETag // That of parts says less.
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
	return moved{Key: f.Key, Path: to, Size: f.Size, ETag: f.ETag, Action: "fetched"}, nil
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
	name := strings.TrimLeft(strings.TrimPrefix(key, prefix), "/")
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
