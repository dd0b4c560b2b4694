package config

import (
	"net/url"
	"path/filepath"
	"regexp"
)

// Payments is the payment provider through which organizations buy credits.
//
//nolint:lll // A field and its rules are one line.
type Payments struct {
	Provider          string `koanf:"provider" usage:"Payment provider: stripe; empty: credits are not sold."`
	KeyFile           string `koanf:"key_file" usage:"File with the provider's secret key."`
	WebhookSecretFile string `koanf:"webhook_secret_file" usage:"File with the secret of the provider's webhook, whose URL ends in /api/v2/external/billing/webhook."`
	Currency          string `koanf:"currency" usage:"Currency in which credits are sold, such as eur."`
	UnitAmount        int64  `koanf:"unit_amount" usage:"Price of a credit in the currency's smallest unit: 100 is 1.00 EUR."`
	URL               string `koanf:"url" usage:"Base URL of the provider's API; empty: the public one."`
}

// currency is the form of a currency's code.
var currency = regexp.MustCompile(`^[a-z]{3}$`)

// payments checks the payment provider.
func (v *validator) payments(p Payments) {
	v.oneOf("payments.provider", p.Provider, "", "stripe")
	if p.Provider == "" {
		return
	}
	v.check("payments.key_file", filepath.IsAbs(p.KeyFile), "must be an absolute path")
	v.check("payments.webhook_secret_file", filepath.IsAbs(p.WebhookSecretFile), "must be an absolute path")
	v.check("payments.currency", currency.MatchString(p.Currency), "must be a code such as eur")
	v.check("payments.unit_amount", p.UnitAmount >= 1 && p.UnitAmount <= 1_000_000, "must be 1 to 1,000,000")
	u, err := url.Parse(p.URL)
	v.check("payments.url", p.URL == "" || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "",
		"must be an http or https URL")
}
