package docker

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/smithy-go"

	"berth/compute"
)

// resolve turns an AWS key into the user name and password of its registry, which is
// Amazon ECR. Other credentials stay as they are.
func (e *Engine) resolve(ctx context.Context, c *compute.RegistryCredentials) (*compute.RegistryCredentials, error) {
	if c == nil || c.AWSKeyID == "" {
		return c, nil
	}
	settings := aws.Config{
		Region:      c.AWSRegion,
		Credentials: credentials.NewStaticCredentialsProvider(c.AWSKeyID, c.AWSSecret, c.AWSSession),
	}
	if e.cfg.ECR == "" { // The SDK knows where regions are, and the guard where that leads.
		transport, err := e.guard.transport("", false)
		if err != nil {
			return nil, err
		}
		defer transport.CloseIdleConnections()
		settings.HTTPClient = &http.Client{Transport: transport, Timeout: callTimeout}
	}
	api := ecr.NewFromConfig(settings, func(o *ecr.Options) {
		if e.cfg.ECR != "" {
			o.BaseEndpoint = &e.cfg.ECR
		}
	})
	answer, err := api.GetAuthorizationToken(ctx, &ecr.GetAuthorizationTokenInput{})
	if refusal, ok := errors.AsType[smithy.APIError](err); ok && refusal.ErrorFault() != smithy.FaultServer {
		return nil, errNoImage("Amazon ECR refuses the AWS key: %s: %s", refusal.ErrorCode(), refusal.ErrorMessage())
	}
	if err != nil {
		return nil, fmt.Errorf("ask Amazon ECR for a token: %w", err)
	}
	for _, data := range answer.AuthorizationData {
		text, err := base64.StdEncoding.DecodeString(aws.ToString(data.AuthorizationToken))
		user, password, found := strings.Cut(string(text), ":")
		if err == nil && found {
			return &compute.RegistryCredentials{Username: user, Password: password}, nil
		}
	}
	return nil, errNoImage("Amazon ECR gave no token for the AWS key")
}
