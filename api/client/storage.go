package client

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"

	"berth/api/wire"
)

// NewFile is a file to be stored.
type NewFile struct {
	Key    string
	Size   int64
	Type   string                        // Media type; "" if its name says it.
	SHA256 string                        // Of the content, in hexadecimal; "" if it is not known.
	Open   func() (io.ReadCloser, error) // Called for each try.
}

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
	err = c.do(ctx, call{method: http.MethodGet, path: "/storage/list-files", query: query, out: &files, header: &header})
	return files, header.Get("X-Next-Cursor"), err
}

// Upload stores a file. All tries have one Idempotency-Key.
func (c *Client) Upload(ctx context.Context, f NewFile) (wire.UploadedFile, error) {
	var raw [16]byte
	if _, err := io.ReadFull(c.cfg.Rand, raw[:]); err != nil {
		return wire.UploadedFile{}, fmt.Errorf("make idempotency key: %w", err)
	}
	tries := c.newTries()
	for {
		out, retry, err := c.tryUpload(ctx, tries.addr(), hex.EncodeToString(raw[:]), f)
		if err == nil || !retry || ctx.Err() != nil || !tries.next(ctx, err) {
			return out, err
		}
	}
}

// tryUpload sends a file to one address.
func (c *Client) tryUpload(
	ctx context.Context, addr, key string, f NewFile,
) (out wire.UploadedFile, retry bool, err error) {
	body, err := f.Open()
	if err != nil {
		return out, false, err
	}
	defer body.Close()
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	for name, value := range map[string]string{"content_type": f.Type, "sha256": f.SHA256} {
		if value == "" {
			continue
		}
		if err := form.WriteField(name, value); err != nil {
			return out, false, err
		}
	}
	if _, err := form.CreateFormFile("file", "file"); err != nil {
		return out, false, err
	}
	tail := "\r\n--" + form.Boundary() + "--\r\n"
	sent := &sizedReader{r: body, left: f.Size}
	target := addr + apiRoot + "/storage/upload?key=" + url.QueryEscape(f.Key)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target,
		io.NopCloser(io.MultiReader(bytes.NewReader(head.Bytes()), sent, bytes.NewReader([]byte(tail)))))
	if err != nil {
		return out, false, fmt.Errorf("make request: %w", err)
	}
	req.ContentLength = int64(head.Len()) + f.Size + int64(len(tail))
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("Idempotency-Key", key)
	c.identify(req.Header)
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return out, sent.err == nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return out, true, err
	}
	if resp.StatusCode != http.StatusOK {
		refusal := errorOf(resp.StatusCode, resp.Header, answer)
		return out, refusal.temporary(), refusal
	}
	return out, false, json.Unmarshal(answer, &out)
}

// sizedReader reads so many bytes. A file that has become shorter is an error.
type sizedReader struct {
	r    io.Reader
	left int64
	err  error
}

func (s *sizedReader) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n, err := s.r.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	if err == io.EOF && s.left > 0 { //nolint:errorlint // Readers return it as it is.
		err = fmt.Errorf("the file has become shorter by %d bytes", s.left)
	}
	if err != nil && err != io.EOF { //nolint:errorlint // As above.
		s.err = err
	}
	return n, err
}

// Download writes a stored file to w, from an offset on, and returns how many bytes
// it has written. With a tag, only the file that has it is written.
func (c *Client) Download(ctx context.Context, key, tag string, from int64, w io.Writer) (int64, error) {
	return c.fetch(ctx, "/storage/download/"+escapeKey(key), tag, from, w)
}

// DeleteFile deletes a stored file.
func (c *Client) DeleteFile(ctx context.Context, key string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/storage/delete/" + escapeKey(key)})
}

// DeleteFolder deletes the stored files below a prefix, and returns how many there were.
func (c *Client) DeleteFolder(ctx context.Context, prefix string) (int, error) {
	var out wire.DeletedFiles
	err := c.do(ctx, call{method: http.MethodDelete, path: "/storage/delete-folder/" + escapeKey(prefix), out: &out})
	return out.Deleted, err
}

// CopyFile copies a stored file.
func (c *Client) CopyFile(ctx context.Context, from, to string) (wire.UploadedFile, error) {
	var out wire.UploadedFile
	in := wire.CopyFile{From: from, To: to}
	err := c.do(ctx, call{method: http.MethodPost, path: "/storage/copy", body: in, out: &out})
	return out, err
}

// StorageCredentials returns credentials for a client of S3.
func (c *Client) StorageCredentials(ctx context.Context) (wire.StorageCredentials, error) {
	var out wire.StorageCredentials
	err := c.do(ctx, call{method: http.MethodPost, path: "/storage/credentials", noKey: true, out: &out})
	return out, err
}

// StorageUsage returns what the organization stores.
func (c *Client) StorageUsage(ctx context.Context) (wire.StorageUsage, error) {
	var out wire.StorageUsage
	err := c.do(ctx, call{method: http.MethodGet, path: "/storage/usage", out: &out})
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
	err := c.do(ctx, call{method: method, path: "/admin/storage/migrate", out: &out})
	return out, err
}

// SetStorageLimits sets what an organization may store.
func (c *Client) SetStorageLimits(ctx context.Context, slug string, limits wire.StorageLimits) error {
	return c.do(ctx, call{method: http.MethodPut, path: "/admin/storage/" + url.PathEscape(slug), body: limits})
}

// escapeKey escapes a key for a path: all of it, because a slash at its end would be
// taken for none.
func escapeKey(key string) string { return url.PathEscape(key) }
