package node

import (
	"strings"

	"berth/api/handler"
	"berth/node/identity"
)

// accounts returns how people get accounts.
func (n *Node) accounts() (handler.Accounts, error) {
	cfg := n.cfg.OIDC
	out := handler.Accounts{SignUp: n.cfg.Accounts.SignUp, IdentitySignUp: cfg.SignUp, IdentityOrg: cfg.Org}
	if cfg.Issuer == "" {
		return out, nil
	}
	secret := ""
	if cfg.ClientSecretFile != "" {
		var err error
		if secret, err = secretFile("oidc.client_secret_file", cfg.ClientSecretFile); err != nil {
			return out, err
		}
	}
	domains := make([]string, len(cfg.Domains))
	for i, d := range cfg.Domains {
		domains[i] = strings.ToLower(d)
	}
	out.Identities = identity.New(identity.Config{
		Issuer: cfg.Issuer, ClientID: cfg.ClientID, ClientSecret: secret, Domains: domains, Now: n.cluster.Clock().Now,
		Log: n.logger.With("part", "identity"),
	})
	return out, nil
}
