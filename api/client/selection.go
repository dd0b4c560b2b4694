package client

import (
	"context"
	"net/http"

	"berth/api/wire"
	"berth/compute"
)

// SubmitSelection starts a GPU selection.
func (c *Client) SubmitSelection(ctx context.Context, start StartSelection) (wire.SelectionStarted, error) {
	var out wire.SelectionStarted
	err := c.do(ctx, call{method: http.MethodPost, path: "/execution/gpu_selection/start", body: start, out: &out})
	return out, err
}

// Selection returns what the GPU selection has found so far.
func (c *Client) Selection(ctx context.Context, id compute.ExecutionID) (wire.Selection, error) {
	var out wire.Selection
	err := c.do(ctx, call{method: http.MethodGet, path: "/execution/gpu_selection/" + id.String(), out: &out})
	return out, err
}
