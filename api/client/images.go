package client

import (
	"context"
	"net/http"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// Registry has the credentials for the registry of images.
type Registry struct {
	CredentialType string `json:"docker_registry_credential_type,omitempty"` // "basic", "aws", or "" for none.
	Username       string `json:"docker_username,omitempty"`
	Password       string `json:"docker_password,omitempty"`
	AWSKeyID       string `json:"aws_access_key_id,omitempty"`
	AWSSecret      string `json:"aws_secret_access_key,omitempty"`
	AWSSession     string `json:"aws_session_token,omitempty"`
	AWSRegion      string `json:"aws_region,omitempty"`
}

// StartImage is a request to execute the program of a Docker image. The fields of Start
// that name a program stay empty.
type StartImage struct {
	Start
	Registry

	Image           string   `json:"docker_image_ref"`
	RunCommand      []string `json:"docker_run_cmd,omitempty"` // In place of the image's own arguments.
	RunUser         string   `json:"docker_run_user,omitempty"`
	GracefulTimeout int      `json:"graceful_timeout,omitempty"` // Seconds; 0 for 10.
}

// SubmitImage starts an execution of an image.
func (c *Client) SubmitImage(ctx context.Context, start StartImage) (wire.Started, error) {
	var out wire.Started
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/execution/image/start", Body: start, Out: &out})
	return out, err
}

// StartCompose is a request to execute the services of a Compose file. The fields of
// Start that name a program stay empty.
type StartCompose struct {
	Start
	Registry

	File            string `json:"compose_file_code"`
	GracefulTimeout int    `json:"graceful_timeout,omitempty"` // Seconds; 0 for 10.
}

// SubmitCompose starts an execution of a Compose file.
func (c *Client) SubmitCompose(ctx context.Context, start StartCompose) (wire.Started, error) {
	var out wire.Started
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/execution/compose/start", Body: start, Out: &out})
	return out, err
}

// CompleteCompose reports the end of an execution of a Compose file.
func (c *Client) CompleteCompose(
	ctx context.Context, id compute.ExecutionID, seen wire.ComposeComplete,
) (wire.Stopped, error) {
	var out wire.Stopped
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPost, Path: "/execution/compose/complete/" + id.String(), Body: seen, Out: &out,
	})
	return out, err
}

// AllOrgs returns all organizations of the cluster, for an operator.
func (c *Client) AllOrgs(ctx context.Context) ([]wire.AdminOrg, error) {
	return pagesOf(ctx, c, "/admin/orgs", func(page *wire.AdminOrgs) []wire.AdminOrg { return page.Orgs })
}

// TrustOrg says whether containers of an organization may be placed on nodes that isolate
// them below the minimum.
func (c *Client) TrustOrg(ctx context.Context, slug string, trusted bool) (wire.AdminOrg, error) {
	var out wire.AdminOrg
	err := c.Do(ctx, berth.Call{
		Method: http.MethodPatch, Path: "/admin/orgs/" + slug, Body: wire.OrgTrust{Trusted: &trusted}, Out: &out,
	})
	return out, err
}
