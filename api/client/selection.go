package client

import (
	"context"
	"net/http"
	"net/url"

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

// SelectionAs returns the GPU selection in another format: csv, a table with a
// line per GPU type, or svg, a chart.
func (c *Client) SelectionAs(ctx context.Context, id compute.ExecutionID, format string) ([]byte, error) {
	var raw []byte
	err := c.do(ctx, call{
		method: http.MethodGet, path: "/execution/gpu_selection/" + id.String(),
		query: url.Values{"format": {format}}, raw: &raw,
	})
	return raw, err
}
