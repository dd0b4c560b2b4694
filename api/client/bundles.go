package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"berth/api/wire"
	"berth/compute"
)

// CreateBundle begins a bundle of files, or goes on with one of the same files. It
// returns which blobs are missing.
func (c *Client) CreateBundle(ctx context.Context, files []wire.BundleFile) (wire.Bundle, error) {
	if files == nil {
		files = []wire.BundleFile{}
	}
	var out wire.Bundle
	err := c.do(ctx, call{method: http.MethodPost, path: "/bundles", body: wire.NewBundle{Files: files}, out: &out})
	return out, err
}

// PutBlob sends a blob of a bundle.
func (c *Client) PutBlob(ctx context.Context, id compute.BundleID, name compute.Digest, data []byte) error {
	return c.do(ctx, call{
		method: http.MethodPut, path: "/bundles/" + id.String() + "/blobs/" + name.String(), noKey: true, payload: data,
		media: "application/octet-stream",
	})
}

// CommitBundle makes a bundle usable.
func (c *Client) CommitBundle(ctx context.Context, id compute.BundleID) (wire.CommittedBundle, error) {
	var out wire.CommittedBundle
	err := c.do(ctx, call{method: http.MethodPost, path: "/bundles/" + id.String() + "/commit", out: &out})
	return out, err
}

// Outputs returns the files that an execution left.
func (c *Client) Outputs(ctx context.Context, id compute.ExecutionID) ([]wire.Output, error) {
	var out []wire.Output
	err := c.do(ctx, call{method: http.MethodGet, path: "/execution/" + id.String() + "/outputs", out: &out})
	return out, err
}

// Output writes one of these files to w, from an offset on. It returns how many
// bytes it has written, also with an error: a caller may go on from there.
func (c *Client) Output(
	ctx context.Context, id compute.ExecutionID, name string, from int64, w io.Writer,
) (int64, error) {
	return c.fetch(ctx, "/execution/"+id.String()+"/outputs/"+escapePath(name), "", from, w)
}

// countingWriter counts what it passes on, and keeps the error of its writer.
type countingWriter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n, c.err = c.n+int64(n), err
	return n, err
}

// escapePath escapes each part of a path.
func escapePath(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}
