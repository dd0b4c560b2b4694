package node

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"berth/node/config"
)

// apiTLS returns the API's TLS configuration, nil for plain HTTP. The files
// are read again for new connections, so that a renewed certificate counts.
func (n *Node) apiTLS() (*tls.Config, error) {
	cfg := n.cfg.API.TLS
	if cfg.Cert == "" && len(cfg.ACME.Hosts) > 0 {
		return acmeTLS(cfg.ACME, filepath.Join(n.cfg.DataDir, "acme"))
	}
	if cfg.Cert == "" {
		return nil, nil
	}
	if _, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key); err != nil {
		return nil, fmt.Errorf("load api certificate: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
			return &pair, err
		},
	}, nil
}

// acmeTLS returns a configuration whose certificates an ACME authority gives and renews.
// They are kept in dir.
func acmeTLS(cfg config.ACME, dir string) (*tls.Config, error) {
	client := &acme.Client{DirectoryURL: cfg.Directory}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("api.tls.acme.ca_file: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("api.tls.acme.ca_file: %s has no certificate", cfg.CAFile)
		}
		client.HTTPClient = &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		}}
	}
	manager := &autocert.Manager{
		Prompt: autocert.AcceptTOS, Cache: autocert.DirCache(dir), HostPolicy: autocert.HostWhitelist(cfg.Hosts...),
		Client: client, Email: cfg.Email,
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: manager.GetCertificate,
		NextProtos: []string{"http/1.1", acme.ALPNProto},
	}, nil
}
