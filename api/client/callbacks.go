package client

import (
	"context"
	"net/http"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// Callbacks returns the deliveries of the callbacks of an execution.
func (c *Client) Callbacks(ctx context.Context, id compute.ExecutionID) ([]wire.Callback, error) {
	var out []wire.Callback
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/execution/" + id.String() + "/callbacks", Out: &out})
	return out, err
}

// Redeliver has callbacks of an execution sent again: the one with a webhook-id, or all
// for "".
func (c *Client) Redeliver(ctx context.Context, id compute.ExecutionID, webhookID string) (wire.Redelivered, error) {
	var out wire.Redelivered
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: "/execution/" + id.String() + "/callbacks/redeliver",
		Body: wire.Redeliver{WebhookID: webhookID}, Out: &out,
	})
	return out, err
}
