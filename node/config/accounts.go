package config

import (
	"net"
	"net/url"
	"path/filepath"
)

// Accounts says how people get accounts.
type Accounts struct {
	SignUp bool `koanf:"signup" usage:"Anyone who reaches the API may make an account with a password."`
}

// OIDC is the identity provider with which people sign in.
//
//nolint:lll // A field and its rules are one line.
type OIDC struct {
	Issuer           string   `koanf:"issuer" usage:"URL of the identity provider, which speaks OpenID Connect; empty: none."`
	ClientID         string   `koanf:"client_id" usage:"Identifier of this cluster at the identity provider."`
	ClientSecretFile string   `koanf:"client_secret_file" usage:"File with the secret of the client; empty for a public client."`
	Domains          []string `koanf:"domains" usage:"Domains of email addresses that may sign in; empty: all of the provider's."`
	SignUp           bool     `koanf:"signup" usage:"People of the identity provider without an account get one."`
	Org              string   `koanf:"org" usage:"Slug of the organization that they join as members; empty: one of their own."`
}

// oidc checks the identity provider.
func (v *validator) oidc(o OIDC) {
	if o.Issuer == "" {
		v.check("oidc.client_id", o.ClientID == "", "goes together with oidc.issuer")
		return
	}
	u, err := url.Parse(o.Issuer)
	secure := err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Hostname()))
	v.check("oidc.issuer", secure, "must be an https URL")
	v.check("oidc.client_id", o.ClientID != "", "is needed with oidc.issuer")
	v.check("oidc.client_secret_file", o.ClientSecretFile == "" || filepath.IsAbs(o.ClientSecretFile),
		"must be an absolute path")
	v.check("oidc.org", o.Org == "" || o.SignUp, "needs oidc.signup")
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
