package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"berth/api/wire"
	berth "berth/sdk/go"
)

// Files returns a page of the stored files whose keys begin with a prefix, and the
// cursor of the next page, "" behind the last one.
func (c *Client) Files(
	ctx context.Context, prefix, cursor string, limit int,
) (files []wire.File, next string, err error) {
	query := url.Values{}
	for name, value := range map[string]string{"prefix": prefix, "cursor": cursor} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if limit > 0 {
		query.Set("max_files", strconv.Itoa(limit))
	}
	var header http.Header
	err = c.Do(ctx, berth.Call{
		Method: http.MethodGet, Path: "/storage/list-files", Query: query, Out: &files, Header: &header,
	})
	return files, header.Get("X-Next-Cursor"), err
}

// Upload stores a file. All tries have one Idempotency-Key.
func (c *Client) Upload(ctx context.Context, f NewFile) (wire.UploadedFile, error) {
	var out wire.UploadedFile
	err := c.UploadInto(ctx, f, &out)
	return out, err
}

// Download writes a stored file to w, from an offset on, and returns how many bytes
// it has written. With a tag, only the file that has it is written.
func (c *Client) Download(ctx context.Context, key, tag string, from int64, w io.Writer) (int64, error) {
	return c.Fetch(ctx, "/storage/download/"+escapeKey(key), tag, from, w)
}

// DeleteFile deletes a stored file.
func (c *Client) DeleteFile(ctx context.Context, key string) error {
	return c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: "/storage/delete/" + escapeKey(key)})
}

// DeleteFolder deletes the stored files below a prefix, and returns how many there were.
func (c *Client) DeleteFolder(ctx context.Context, prefix string) (int, error) {
	var out wire.DeletedFiles
	err := c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: "/storage/delete-folder/" + escapeKey(prefix), Out: &out})
	return out.Deleted, err
}

// CopyFile copies a stored file.
func (c *Client) CopyFile(ctx context.Context, from, to string) (wire.UploadedFile, error) {
	var out wire.UploadedFile
	in := wire.CopyFile{From: from, To: to}
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/storage/copy", Body: in, Out: &out})
	return out, err
}

// StorageCredentials returns credentials for a client of S3.
func (c *Client) StorageCredentials(ctx context.Context) (wire.StorageCredentials, error) {
	var out wire.StorageCredentials
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/storage/credentials", NoKey: true, Out: &out})
	return out, err
}

// StorageUsage returns what the organization stores.
func (c *Client) StorageUsage(ctx context.Context) (wire.StorageUsage, error) {
	var out wire.StorageUsage
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/storage/usage", Out: &out})
	return out, err
}

// SetStorageLimits sets what an organization may store.
func (c *Client) SetStorageLimits(ctx context.Context, slug string, limits wire.StorageLimits) error {
	return c.Do(ctx, berth.Call{Method: http.MethodPut, Path: "/admin/storage/" + url.PathEscape(slug), Body: limits})
}

// escapeKey escapes a key for a path: all of it, because a slash at its end would be
// taken for none.
func escapeKey(key string) string { return url.PathEscape(key) }
