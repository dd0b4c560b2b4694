package client

import (
	"context"
	"net/http"
	"net/url"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// SubmitSelection starts a GPU selection.
func (c *Client) SubmitSelection(ctx context.Context, start StartSelection) (wire.SelectionStarted, error) {
	var out wire.SelectionStarted
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/execution/gpu_selection/start", Body: start, Out: &out})
	return out, err
}

// Selection returns the results of the GPU selection so far.
func (c *Client) Selection(ctx context.Context, id compute.ExecutionID) (wire.Selection, error) {
	var out wire.Selection
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/execution/gpu_selection/" + id.String(), Out: &out})
	return out, err
}

// SelectionAs returns the GPU selection in another format: csv, a table with a
// line per GPU type, or svg, a chart.
func (c *Client) SelectionAs(ctx context.Context, id compute.ExecutionID, format string) ([]byte, error) {
	var raw []byte
	err := c.Do(ctx, berth.Call{
		Method: http.MethodGet, Path: "/execution/gpu_selection/" + id.String(),
		Query: url.Values{"format": {format}}, Raw: &raw,
	})
	return raw, err
}
