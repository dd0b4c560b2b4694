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

// DownloadPart is Download of so many bytes.
func (c *Client) DownloadPart(
	ctx context.Context, key, tag string, from, length int64, w io.Writer,
) (int64, error) {
	return c.FetchPart(ctx, "/storage/download/"+escapeKey(key), tag, from, length, w)
}

// StartUpload begins to store a file in parts.
func (c *Client) StartUpload(ctx context.Context, in wire.NewUpload) (wire.StartedUpload, error) {
	var out wire.StartedUpload
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: uploadsPath, Body: in, Out: &out})
	return out, err
}

// Uploads returns the uploads of a key that are not complete, of all keys for "".
func (c *Client) Uploads(ctx context.Context, key string) ([]wire.PartialUpload, error) {
	query := url.Values{}
	if key != "" {
		query.Set("key", key)
	}
	var out []wire.PartialUpload
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: uploadsPath, Query: query, Out: &out})
	return out, err
}

// UploadState returns the parts of an upload that have come.
func (c *Client) UploadState(ctx context.Context, upload string) (wire.UploadState, error) {
	var out wire.UploadState
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: uploadsPath + "/" + url.PathEscape(upload), Out: &out})
	return out, err
}

// UploadPart stores a part of an upload.
func (c *Client) UploadPart(
	ctx context.Context, upload string, number int, size int64, open func() (io.ReadCloser, error),
) (wire.UploadPart, error) {
	var out wire.UploadPart
	path := uploadsPath + "/" + url.PathEscape(upload) + "/parts/" + strconv.Itoa(number)
	err := c.UploadPartInto(ctx, path, size, open, &out)
	return out, err
}

// CompleteUpload makes a file of parts.
func (c *Client) CompleteUpload(
	ctx context.Context, upload string, in wire.CompleteUpload,
) (wire.UploadedFile, error) {
	var out wire.UploadedFile
	path := uploadsPath + "/" + url.PathEscape(upload) + "/complete"
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: path, Body: in, Out: &out})
	return out, err
}

// uploadsPath is the path of uploads in parts.
const uploadsPath = "/storage/uploads"

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

// StorageUsage returns the use of storage by the organization.
func (c *Client) StorageUsage(ctx context.Context) (wire.StorageUsage, error) {
	var out wire.StorageUsage
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/storage/usage", Out: &out})
	return out, err
}

// Migrate has the node move stored files to where new ones go, if start says so, and
// returns how far it is.
func (c *Client) Migrate(ctx context.Context, start bool) (wire.StorageMigration, error) {
	var out wire.StorageMigration
	method := http.MethodGet
	if start {
		method = http.MethodPost
	}
	err := c.Do(ctx, berth.Call{Method: method, Path: "/admin/storage/migrate", Out: &out})
	return out, err
}

// SetStorageLimits sets what an organization may store.
func (c *Client) SetStorageLimits(ctx context.Context, slug string, limits wire.StorageLimits) error {
	return c.Do(ctx, berth.Call{Method: http.MethodPut, Path: "/admin/storage/" + url.PathEscape(slug), Body: limits})
}

// escapeKey escapes a key for a path: all of it, because a slash at its end would be
// taken for none.
func escapeKey(key string) string { return url.PathEscape(key) }
