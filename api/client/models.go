package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"berth/api/wire"
	berth "berth/sdk/go"
)

// Models returns the published models, for operators.
func (c *Client) Models(ctx context.Context) (wire.Models, error) {
	all, err := pagesOf(ctx, c, "/admin/models", func(page *wire.Models) []wire.Model { return page.Models })
	if err != nil {
		return wire.Models{}, err
	}
	return wire.Models{Models: append([]wire.Model{}, all...), Total: len(all)}, nil
}

// SetModel publishes a deployment for every organization.
func (c *Client) SetModel(ctx context.Context, id string, body wire.NewModel) (wire.Model, error) {
	var out wire.Model
	err := c.Do(ctx, berth.Call{Method: http.MethodPut, Path: modelPath(id), Body: body, Out: &out})
	return out, err
}

// RemoveModel withdraws a published model.
func (c *Client) RemoveModel(ctx context.Context, id string) (wire.Message, error) {
	var out wire.Message
	err := c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: modelPath(id), Out: &out})
	return out, err
}

// modelPath returns the path of a model. A slash in its id is one of the path.
func modelPath(id string) string {
	parts := strings.Split(id, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return "/admin/models/" + strings.Join(parts, "/")
}
