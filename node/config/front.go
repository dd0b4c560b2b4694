package config

import (
	"net"
	"net/url"
	"strings"
)

// ACME is an authority that gives the API its certificate.
//
//nolint:lll // A field and its rules are one line.
type ACME struct {
	Hosts     []string `koanf:"hosts" usage:"Host names of this node for which an ACME authority gives certificates (TLS-ALPN-01: it connects to port 443 of them); empty: none. Not used with api.tls.cert."`
	Directory string   `koanf:"directory" usage:"URL of the authority's directory; empty: Let's Encrypt."`
	Email     string   `koanf:"email" usage:"Address to which the authority writes."`
	CAFile    string   `koanf:"ca_file" usage:"PEM file with the authority of the directory's own certificate; empty: those of the machine."`
}

// Secured reports whether the API is served over TLS.
func (a *API) Secured() bool { return a.TLS.Cert != "" || len(a.TLS.ACME.Hosts) > 0 }

// front checks how the API and the endpoint of S3, which has its certificate, are reached.
func (v *validator) front(c *Config) {
	a, s3 := &c.API, ""
	if c.S3.Addr != S3Auto { // That one has the host of the API.
		s3 = c.S3Addr()
	}
	v.check("s3.addr", s3 == "" || isAddress(s3), "must be host:port, auto or off")
	v.check("api.tls.key", (a.TLS.Cert == "") == (a.TLS.Key == ""), "goes together with api.tls.cert")
	for _, host := range a.TLS.ACME.Hosts {
		v.check("api.tls.acme.hosts", strings.Contains(host, ".") && net.ParseIP(host) == nil,
			"must be host names such as gpu-1.example.org")
	}
	u, err := url.Parse(a.TLS.ACME.Directory)
	v.check("api.tls.acme.directory", a.TLS.ACME.Directory == "" || err == nil && u.Scheme == "https",
		"must be an https URL")
	for _, addr := range []string{a.Addr, s3} {
		host, _, err := net.SplitHostPort(addr)
		v.check("api.insecure", err != nil || isLoopback(host) || a.Secured() || a.Insecure,
			"is needed to serve plain HTTP beyond this machine at "+addr+
				": set api.tls, or api.insecure: true behind a proxy that has TLS")
	}
	if host, _, err := net.SplitHostPort(c.Metrics.Addr); err == nil && !isLoopback(host) {
		v.check("metrics.insecure", c.Metrics.Insecure,
			"is needed to serve plain HTTP beyond this machine at "+c.Metrics.Addr+
				": scrape the API's /metrics instead, or set it where nobody listens")
		v.check("metrics.token_file", c.Metrics.TokenFile != "", "is needed beyond this machine, at "+c.Metrics.Addr)
	}
	for _, name := range a.Hosts {
		v.check("api.hosts", name != "" && name == strings.ToLower(name) && !strings.ContainsAny(name, "/: "),
			"must be host names in lower case, without a port")
	}
	for _, origin := range a.Origins {
		u, err := url.Parse(origin)
		usable := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.Path == ""
		v.check("api.cors_origins", origin == "*" || usable,
			"must be origins such as https://lab.example.org, or *")
	}
}

// rates checks the limits of requests.
func (v *validator) rates(l Limits) {
	for key, rate := range map[string]float64{
		"limits.key_rate": l.KeyRate, "limits.org_rate": l.OrgRate, "limits.address_rate": l.AddressRate,
	} {
		v.check(key, rate > 0 && rate <= 1e6, "must be above 0 and at most 1,000,000")
	}
}
