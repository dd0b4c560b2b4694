package client

import (
	"context"
	"net/http"

	"berth/api/wire"
	"berth/compute"
)

// Callbacks returns what became of the callbacks of an execution.
func (c *Client) Callbacks(ctx context.Context, id compute.ExecutionID) ([]wire.Callback, error) {
	var out []wire.Callback
	err := c.do(ctx, call{method: http.MethodGet, path: "/execution/" + id.String() + "/callbacks", out: &out})
	return out, err
}

// Redeliver has callbacks of an execution sent again: the one with a webhook-id, or all
// for "".
func (c *Client) Redeliver(ctx context.Context, id compute.ExecutionID, webhookID string) (wire.Redelivered, error) {
	var out wire.Redelivered
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/execution/" + id.String() + "/callbacks/redeliver",
		body: wire.Redeliver{WebhookID: webhookID}, out: &out,
	})
	return out, err
}
