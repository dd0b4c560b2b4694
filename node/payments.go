package node

import (
	"fmt"

	"berth/api/handler"
	"berth/compute"
	"berth/node/payment"
)

// payments returns the configured payment provider, nil for none.
func (n *Node) payments() (handler.Payments, error) {
	cfg := n.cfg.Payments
	if cfg.Provider == "" {
		return nil, nil
	}
	key, err := secretFile("payments.key_file", cfg.KeyFile)
	if err != nil {
		return nil, err
	}
	secret, err := secretFile("payments.webhook_secret_file", cfg.WebhookSecretFile)
	if err != nil {
		return nil, err
	}
	return payment.New(payment.Config{
		Key: key, WebhookSecret: secret, Currency: cfg.Currency, UnitAmount: cfg.UnitAmount, URL: cfg.URL,
		Cluster: func() compute.UUID { return n.machine.View().ClusterID() },
	}), nil
}

// secretFile returns the secret in the file of a setting, which has to be there.
func secretFile(setting, path string) (string, error) {
	secret, err := readToken(path)
	if err == nil && secret == "" {
		err = fmt.Errorf("%s: %q is missing or empty", setting, path)
	}
	return secret, err
}
