package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// CreateBundle begins a bundle of files, or goes on with one of the same files. It
// returns which blobs are missing.
func (c *Client) CreateBundle(ctx context.Context, files []wire.BundleFile) (wire.Bundle, error) {
	if files == nil {
		files = []wire.BundleFile{}
	}
	var out wire.Bundle
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/bundles", Body: wire.NewBundle{Files: files}, Out: &out})
	return out, err
}

// PutBlob sends a blob of a bundle.
func (c *Client) PutBlob(ctx context.Context, id compute.BundleID, name compute.Digest, data []byte) error {
	return c.Do(ctx, berth.Call{
		Method: http.MethodPut, Path: "/bundles/" + id.String() + "/blobs/" + name.String(), NoKey: true, Payload: data,
		Media: "application/octet-stream",
	})
}

// CommitBundle makes a bundle usable.
func (c *Client) CommitBundle(ctx context.Context, id compute.BundleID) (wire.CommittedBundle, error) {
	var out wire.CommittedBundle
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/bundles/" + id.String() + "/commit", Out: &out})
	return out, err
}

// Outputs returns the files that an execution left.
func (c *Client) Outputs(ctx context.Context, id compute.ExecutionID) ([]wire.Output, error) {
	var out []wire.Output
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/execution/" + id.String() + "/outputs", Out: &out})
	return out, err
}

// Output writes one of these files to w, from an offset on. It returns how many
// bytes it has written, also with an error: a caller may go on from there.
func (c *Client) Output(
	ctx context.Context, id compute.ExecutionID, name string, from int64, w io.Writer,
) (int64, error) {
	return c.Fetch(ctx, "/execution/"+id.String()+"/outputs/"+escapePath(name), "", from, w)
}

// StoreOutputs copies these files to the stored files, below a prefix.
func (c *Client) StoreOutputs(
	ctx context.Context, id compute.ExecutionID, prefix string,
) (wire.StoredOutputs, error) {
	var out wire.StoredOutputs
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: "/execution/" + id.String() + "/outputs/store",
		Body: wire.StoreOutputs{Prefix: prefix}, Out: &out, Wait: storeWait,
	})
	return out, err
}

// storeWait is how long a node may take to copy what an execution left.
const storeWait = 30 * time.Minute

// escapePath escapes each part of a path.
func escapePath(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}
