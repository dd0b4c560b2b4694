package client

import (
	"context"
	"net/http"

	"berth/api/wire"
	berth "berth/sdk/go"
)

// MachineTypes returns every hardware profile of the cluster.
func (c *Client) MachineTypes(ctx context.Context) ([]wire.MachineType, error) {
	var out wire.MachineTypes
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/machine-types", Out: &out})
	return out.MachineTypes, err
}

// Quotas returns the quotas of the caller's organization and their use.
func (c *Client) Quotas(ctx context.Context) (wire.Quotas, error) {
	var out wire.Quotas
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/user/quotas", Out: &out})
	return out, err
}

// UserStatus returns the user of the token.
func (c *Client) UserStatus(ctx context.Context) (wire.UserStatus, error) {
	var out wire.UserStatus
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/user/status", Out: &out})
	return out, err
}
