package client

import (
	"context"
	"net/http"
	"net/url"

	"berth/api/wire"
	berth "berth/sdk/go"
)

// environmentsPath returns where environments are: those of the cluster for operators.
func environmentsPath(shared bool) string {
	if shared {
		return "/admin/environments"
	}
	return "/environments"
}

// Environments returns the named environments that executions may ask for or, for an
// operator with shared, those of the cluster.
func (c *Client) Environments(ctx context.Context, shared bool) ([]wire.Environment, error) {
	return pages[wire.Environment](ctx, c, environmentsPath(shared))
}

// CreateEnvironment makes a named environment of the organization or, with shared, one
// that every organization may use.
func (c *Client) CreateEnvironment(
	ctx context.Context, env wire.NewEnvironment, shared bool,
) (wire.Environment, error) {
	body := map[string]any{"name": env.Name}
	for name, value := range map[string]string{
		"requirements": env.Requirements, "path": env.Path, "interpreter": env.Interpreter,
	} {
		if value != "" {
			body[name] = value
		}
	}
	var out wire.Environment
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: environmentsPath(shared), Body: body, Out: &out})
	return out, err
}

// DeleteEnvironment deletes a named environment that nothing uses.
func (c *Client) DeleteEnvironment(ctx context.Context, name string, shared bool) error {
	return c.Do(ctx, berth.Call{
		Method: http.MethodDelete, Path: environmentsPath(shared) + "/" + url.PathEscape(name), Out: new(wire.Message),
	})
}
