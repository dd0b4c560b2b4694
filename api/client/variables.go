package client

import (
	"context"
	"net/http"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// Variables returns the caller's environment variables, secrets masked.
func (c *Client) Variables(ctx context.Context) ([]wire.Variable, error) {
	var out wire.Variables
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/environment-variables", Out: &out})
	return out.Variables, err
}

// SetVariable keeps a variable for all of the caller's executions.
func (c *Client) SetVariable(ctx context.Context, name, value string, secret bool) error {
	body := map[string]any{"name": name, "value": value, "is_secret": secret}
	return c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/environment-variables", Body: body})
}

// RemoveVariable deletes a variable.
func (c *Client) RemoveVariable(ctx context.Context, id compute.VariableID) error {
	return c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: "/environment-variables/" + id.String()})
}

// RemoveVariables deletes all of the caller's variables and returns how many they were.
func (c *Client) RemoveVariables(ctx context.Context) (int, error) {
	var out wire.DeletedVariables
	err := c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: "/environment-variables", Out: &out})
	return out.Deleted, err
}
