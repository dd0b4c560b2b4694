package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"berth/compute"
)

// callTimeout bounds a call of the provider.
const callTimeout = 8 * time.Second

// noteEvery is how often a failure is logged: strangers can cause them.
const noteEvery = 5 * time.Second

// deviceGrant is the grant type of RFC 8628.
const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// Config has the settings of a Provider.
type Config struct {
	Issuer       string
	ClientID     string
	ClientSecret string   // "" for a public client.
	Domains      []string // Domains of e-mail addresses that may sign in; none for all.
	Client       *http.Client
	Now          func() time.Time
	Log          *slog.Logger // For why sign-ins fail; nil for no log.
}

// Provider is an identity provider.
type Provider struct {
	cfg Config

	mu sync.Mutex

	found *oidc.Provider // Nil until it has been discovered.
	noted time.Time      // When a failure was last logged.
}

// New returns a Provider, which is discovered when it is used first.
func New(cfg Config) *Provider {
	if cfg.Client == nil {
		cfg.Client = &http.Client{Timeout: callTimeout}
	}
	return &Provider{cfg: cfg}
}

// discover returns the issuer with its endpoints and keys.
func (p *Provider) discover(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.found != nil {
		return p.found, nil
	}
	// Its keys are fetched again later, with the client of this context.
	found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.cfg.Client), p.cfg.Issuer)
	if err != nil {
		return nil, errProvider(err)
	}
	p.found = found
	return found, nil
}

// errProvider refuses a sign-in while the provider does not answer.
func errProvider(err error) error {
	e := compute.Errorf(compute.CodeUnavailable, "The identity provider does not answer: try again.").
		Named("identity_provider").Retry(5 * time.Second)
	e.Err = withoutSecrets(err)
	return e
}

// withoutSecrets returns err, or for an answer of the provider only its code: the rest may
// repeat what was sent.
func withoutSecrets(err error) error {
	if answer, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return fmt.Errorf("the provider answered %q", answer.ErrorCode)
	}
	return err
}

// note logs why a sign-in failed, if the provider or its settings are the reason: the
// operator has to act, and the answer to the person has no reason in it.
func (p *Provider) note(err error) {
	e, ok := errors.AsType[*compute.Error](err)
	if !ok || e.Err == nil || p.cfg.Log == nil {
		return
	}
	p.mu.Lock()
	now := p.cfg.Now()
	due := p.noted.IsZero() || now.Sub(p.noted) >= noteEvery
	if due {
		p.noted = now
	}
	p.mu.Unlock()
	if due {
		p.cfg.Log.Warn("sign-in with the identity provider failed", "code", e.Detail, "err", e.Err)
	}
}

// client returns the OAuth client of the provider.
func (p *Provider) client(found *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, Endpoint: found.Endpoint(),
		Scopes: []string{oidc.ScopeOpenID, "profile", "email"},
	}
}

// call returns the context of a call of the provider.
func (p *Provider) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(oidc.ClientContext(ctx, p.cfg.Client), callTimeout)
}

// Endpoints returns where browsers sign in.
func (p *Provider) Endpoints(ctx context.Context) (_ compute.IdentityProvider, err error) {
	defer func() { p.note(err) }()
	ctx, cancel := p.call(ctx)
	defer cancel()
	found, err := p.discover(ctx)
	if err != nil {
		return compute.IdentityProvider{}, err
	}
	e := found.Endpoint()
	return compute.IdentityProvider{
		Issuer: p.cfg.Issuer, ClientID: p.cfg.ClientID, AuthorizationURL: e.AuthURL, Device: e.DeviceAuthURL != "",
	}, nil
}

// Device starts the sign-in of a program that has no browser.
func (p *Provider) Device(ctx context.Context) (_ compute.DeviceCode, err error) {
	defer func() { p.note(err) }()
	ctx, cancel := p.call(ctx)
	defer cancel()
	found, err := p.discover(ctx)
	if err != nil {
		return compute.DeviceCode{}, err
	}
	client := p.client(found)
	if client.Endpoint.DeviceAuthURL == "" {
		return compute.DeviceCode{}, compute.Errorf(compute.CodeInvalid,
			"The identity provider has no sign-in for devices.").Named("not_available")
	}
	// RFC 8628 lets clients that have a secret authenticate here too, and some providers ask for it.
	client.Endpoint.DeviceAuthURL = found.Endpoint().DeviceAuthURL
	var options []oauth2.AuthCodeOption
	if p.cfg.ClientSecret != "" {
		options = append(options, oauth2.SetAuthURLParam("client_secret", p.cfg.ClientSecret))
	}
	answer, err := client.DeviceAuth(ctx, options...)
	if err != nil {
		return compute.DeviceCode{}, errProvider(err)
	}
	return compute.DeviceCode{
		Device: answer.DeviceCode, User: answer.UserCode,
		URL: answer.VerificationURI, FullURL: answer.VerificationURIComplete,
		Interval: max(int(answer.Interval), 1), Expires: compute.InstantOf(answer.Expiry),
	}, nil
}

// Poll returns the person who has approved the sign-in of a device. Until then the
// error's detail is authorization_pending or slow_down.
func (p *Provider) Poll(ctx context.Context, device string) (compute.Identity, error) {
	return p.redeem(ctx, "", "", "",
		oauth2.SetAuthURLParam("grant_type", deviceGrant), oauth2.SetAuthURLParam("device_code", device))
}

// Exchange returns the person who has signed in at the provider in a browser. The
// verifier is that of PKCE, and the nonce is the one of the request.
func (p *Provider) Exchange(ctx context.Context, code, verifier, redirectURL, nonce string) (compute.Identity, error) {
	return p.redeem(ctx, code, redirectURL, nonce, oauth2.VerifierOption(verifier))
}

// redeem exchanges a code for tokens, and verifies them.
func (p *Provider) redeem(
	ctx context.Context, code, redirectURL, nonce string, options ...oauth2.AuthCodeOption,
) (_ compute.Identity, err error) {
	defer func() { p.note(err) }()
	ctx, cancel := p.call(ctx)
	defer cancel()
	found, err := p.discover(ctx)
	if err != nil {
		return compute.Identity{}, err
	}
	client := p.client(found)
	client.RedirectURL = redirectURL
	token, err := client.Exchange(ctx, code, options...)
	if answer, ok := errors.AsType[*oauth2.RetrieveError](err); ok && answer.ErrorCode != "" {
		return compute.Identity{}, refusedBy(answer.ErrorCode)
	}
	if err != nil {
		return compute.Identity{}, errProvider(err)
	}
	text, ok := token.Extra("id_token").(string)
	if !ok {
		return compute.Identity{}, errIdentity(errors.New("no ID token"))
	}
	verified, err := found.Verifier(&oidc.Config{ClientID: p.cfg.ClientID, Now: p.cfg.Now}).Verify(ctx, text)
	if err != nil {
		return compute.Identity{}, errIdentity(fmt.Errorf("verify ID token: %w", err))
	}
	if verified.Nonce != nonce {
		return compute.Identity{}, errIdentity(errors.New("the ID token is of another sign-in"))
	}
	if err := p.checkParty(verified); err != nil {
		return compute.Identity{}, errIdentity(err)
	}
	return p.identify(ctx, found, verified, token)
}

// checkParty checks for which client the provider made a token, as OpenID Connect Core 3.1.3.7
// has it: a token with several audiences names the authorized party, which is this client.
func (p *Provider) checkParty(verified *oidc.IDToken) error {
	var c struct {
		Party *string `json:"azp"`
	}
	if err := verified.Claims(&c); err != nil {
		return err
	}
	switch {
	case c.Party == nil && len(verified.Audience) > 1:
		return errors.New("the ID token has several audiences and no authorized party")
	case c.Party != nil && *c.Party != p.cfg.ClientID:
		return errors.New("the ID token was made for another client")
	}
	return nil
}

// refusedBy returns the refusal for an error code of the provider.
func refusedBy(code string) error {
	switch code {
	case "authorization_pending", "slow_down":
		return compute.Errorf(compute.CodeInvalid, "The sign-in is not approved yet.").Named(code)
	case "access_denied":
		return compute.Errorf(compute.CodeForbidden, "The sign-in was denied.").Named(code)
	case "invalid_client", "unauthorized_client", "unsupported_grant_type":
		return errProvider(fmt.Errorf("the provider answered %q", code))
	}
	return compute.Errorf(compute.CodeUnauthenticated, "The code has expired or was used: start over.").Named("bad_login")
}

// errIdentity refuses tokens that prove nothing.
func errIdentity(err error) error {
	e := compute.Errorf(compute.CodeUnauthenticated, "The identity provider's answer is not valid.").Named("bad_login")
	e.Err = err
	return e
}

// claims are the fields that are read of an ID token, or of the user's
// information.
type claims struct {
	Email    string `json:"email"`
	Verified any    `json:"email_verified"` // Some providers send a string.
	Name     string `json:"name"`
}

// identify returns the person of a verified token. If the token has no address, it asks
// the provider for it.
func (p *Provider) identify(
	ctx context.Context, found *oidc.Provider, verified *oidc.IDToken, token *oauth2.Token,
) (compute.Identity, error) {
	var c claims
	if err := verified.Claims(&c); err != nil {
		return compute.Identity{}, errIdentity(err)
	}
	if c.Email == "" {
		info, err := found.UserInfo(ctx, oauth2.StaticTokenSource(token))
		if err != nil {
			return compute.Identity{}, errProvider(err)
		}
		if info.Subject != verified.Subject {
			return compute.Identity{}, errIdentity(errors.New("the user's information is of another user"))
		}
		if err := info.Claims(&c); err != nil {
			return compute.Identity{}, errIdentity(err)
		}
	}
	who := compute.Identity{
		Subject: p.cfg.Issuer + " " + verified.Subject, Email: strings.ToLower(c.Email), Name: c.Name,
	}
	if verifiedEmail(c.Verified) {
		who.EmailVerified = true
	}
	_, domain, _ := strings.Cut(who.Email, "@")
	if len(p.cfg.Domains) > 0 && (!who.EmailVerified || !slices.Contains(p.cfg.Domains, domain)) {
		return compute.Identity{}, compute.Errorf(compute.CodeForbidden,
			"This address may not sign in here.").Named("domain_not_allowed")
	}
	return who, nil
}

func verifiedEmail(claim any) bool { return claim == true || claim == "true" }
