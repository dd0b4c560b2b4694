package client

import (
	"context"
	"net/http"
	"net/url"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// Prices returns the price list, for operators.
func (c *Client) Prices(ctx context.Context) (wire.PriceList, error) {
	var out wire.PriceList
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/admin/prices", Out: &out})
	return out, err
}

// SetPrice sets the price of a GPU type or of cpu and, with a cost, what an hour costs
// the operator.
func (c *Client) SetPrice(
	ctx context.Context, resource string, price compute.Price, cost compute.Credits,
) (wire.ListedPrice, error) {
	body := map[string]any{"microcredits_per_second": price}
	if cost > 0 {
		body["cost"] = cost
	}
	var out wire.ListedPrice
	err := c.Do(ctx, berth.Call{Method: http.MethodPut, Path: pricePath(resource), Body: body, Out: &out})
	return out, err
}

// RemovePrice withdraws a price that was set.
func (c *Client) RemovePrice(ctx context.Context, resource string) (wire.Message, error) {
	var out wire.Message
	err := c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: pricePath(resource), Out: &out})
	return out, err
}

func pricePath(resource string) string { return "/admin/prices/" + url.PathEscape(resource) }

// BillingMode returns whether credits are enforced.
func (c *Client) BillingMode(ctx context.Context) (wire.BillingMode, error) {
	var out wire.BillingMode
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/admin/billing/mode", Out: &out})
	return out, err
}

// SetBillingMode turns the enforcement of credits on or off.
func (c *Client) SetBillingMode(ctx context.Context, mode string) (wire.BillingMode, error) {
	var out wire.BillingMode
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPut, Path: "/admin/billing/mode", Body: wire.BillingMode{Mode: mode}, Out: &out,
	})
	return out, err
}
