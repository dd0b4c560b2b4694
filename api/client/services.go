package client

import (
	"context"
	"net/http"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// StartService is a request to start a service.
type StartService struct {
	Start
	Registry
	Image            string `json:"docker_image_ref,omitempty"` // Command is then in place of its arguments.
	RunUser          string `json:"docker_run_user,omitempty"`
	Port             int    `json:"port,omitempty"`        // 0 for 8000.
	HealthPath       string `json:"health_path,omitempty"` // "" for a TCP connection.
	Replicas         int    `json:"replicas,omitempty"`    // 0 for 1.
	Restart          string `json:"restart,omitempty"`     // "" for always.
	ReadinessTimeout int    `json:"readiness_timeout,omitempty"`
}

// SubmitService starts a service.
func (c *Client) SubmitService(ctx context.Context, start StartService) (wire.ServiceStarted, error) {
	var out wire.ServiceStarted
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/execution/service/start", Body: start, Out: &out})
	return out, err
}

// Services returns the services that have not ended, the newest first.
func (c *Client) Services(ctx context.Context) ([]wire.Service, error) {
	var out []wire.Service
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/services", Out: &out})
	return out, err
}

// Service returns one service.
func (c *Client) Service(ctx context.Context, id compute.ExecutionID) (wire.Service, error) {
	var out wire.Service
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/services/" + id.String(), Out: &out})
	return out, err
}

// DeleteService ends a service.
func (c *Client) DeleteService(ctx context.Context, id compute.ExecutionID) (wire.Stopped, error) {
	var out wire.Stopped
	err := c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: "/services/" + id.String(), Out: &out})
	return out, err
}

// ScaleService changes how many replicas of a service run.
func (c *Client) ScaleService(ctx context.Context, id compute.ExecutionID, replicas int) (wire.Service, error) {
	var out wire.Service
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: "/services/" + id.String() + "/scale",
		Body: wire.ServiceScale{Replicas: replicas}, Out: &out,
	})
	return out, err
}
