package handler

import (
	"context"

	"berth/compute"
)

// Identities is an identity provider.
type Identities interface {
	Endpoints(ctx context.Context) (compute.IdentityProvider, error)
	// Device starts the sign-in of a program without a browser.
	Device(ctx context.Context) (compute.DeviceCode, error)
	// Poll returns the person who has approved a device.
	Poll(ctx context.Context, device string) (compute.Identity, error)
	// Exchange returns the person who has signed in with a browser.
	Exchange(ctx context.Context, code, verifier, redirectURL, nonce string) (compute.Identity, error)
}

// Accounts says how people get accounts by themselves.
type Accounts struct {
	SignUp     bool       // Anyone may make an account with a password.
	Identities Identities // Nil without an identity provider.
	// People of the identity provider without an account get one.
	IdentitySignUp bool
	// IdentityOrg is the slug of the organization that they join; "" for one of their own.
	IdentityOrg string
}
