package client

import (
	"context"
	"net/http"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// deploymentsPath is where deployments are.
const deploymentsPath = "/inference/deployments"

// Deploy creates a deployment of a model.
func (c *Client) Deploy(ctx context.Context, in wire.DeploymentCreate) (wire.DeploymentCreated, error) {
	var out wire.DeploymentCreated
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/inference/create", Body: in, Out: &out})
	return out, err
}

// Deployments returns all deployments, the newest first.
func (c *Client) Deployments(ctx context.Context) (wire.Deployments, error) {
	all, err := pagesOf(ctx, c, deploymentsPath, func(page *wire.Deployments) []wire.Deployment {
		return page.Deployments
	})
	if err != nil {
		return wire.Deployments{}, err
	}
	return wire.Deployments{Deployments: append([]wire.Deployment{}, all...), Total: len(all)}, nil
}

// Deployment returns one deployment.
func (c *Client) Deployment(ctx context.Context, id compute.ExecutionID) (wire.Deployment, error) {
	var out wire.Deployment
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: deploymentsPath + "/" + id.String(), Out: &out})
	return out, err
}

// UpdateDeployment changes a deployment. Its replicas are replaced one after the other,
// each once another one is ready.
func (c *Client) UpdateDeployment(
	ctx context.Context, id compute.ExecutionID, in wire.DeploymentUpdate,
) (wire.DeploymentCreated, error) {
	var out wire.DeploymentCreated
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPatch, Path: deploymentsPath + "/" + id.String(), Body: in, Out: &out,
	})
	return out, err
}

// DeleteDeployment ends a deployment.
func (c *Client) DeleteDeployment(ctx context.Context, id compute.ExecutionID) (wire.DeploymentCreated, error) {
	var out wire.DeploymentCreated
	err := c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: deploymentsPath + "/" + id.String(), Out: &out})
	return out, err
}

// StopDeployment stops a deployment until it is started.
func (c *Client) StopDeployment(ctx context.Context, id compute.ExecutionID) (wire.DeploymentCreated, error) {
	return c.changeDeployment(ctx, id, "stop")
}

// StartDeployment starts a deployment that is stopped, paused or has failed.
func (c *Client) StartDeployment(ctx context.Context, id compute.ExecutionID) (wire.DeploymentCreated, error) {
	return c.changeDeployment(ctx, id, "start")
}

func (c *Client) changeDeployment(
	ctx context.Context, id compute.ExecutionID, verb string,
) (wire.DeploymentCreated, error) {
	var out wire.DeploymentCreated
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: deploymentsPath + "/" + id.String() + "/" + verb, Out: &out,
	})
	return out, err
}

// DeploymentLogs returns the newest lines of a deployment's engines.
func (c *Client) DeploymentLogs(ctx context.Context, id compute.ExecutionID) (wire.Logs, error) {
	var out wire.Logs
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: deploymentsPath + "/" + id.String() + "/logs", Out: &out})
	return out, err
}
