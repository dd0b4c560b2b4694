package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"berth/node/config"
)

// apiTLS returns the API's TLS configuration, nil for plain HTTP. New connections see a
// renewed certificate.
func (n *Node) apiTLS() (*tls.Config, error) {
	cfg := n.cfg.API.TLS
	if cfg.Cert == "" && len(cfg.ACME.Hosts) > 0 {
		return acmeTLS(cfg.ACME, filepath.Join(n.cfg.DataDir, "acme"))
	}
	if cfg.Cert == "" {
		return nil, nil
	}
	pair := &keyPair{cert: cfg.Cert, key: cfg.Key, logger: n.logger}
	if err := pair.load(); err != nil {
		return nil, fmt.Errorf("load api certificate: %w", err)
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.current(), nil },
	}, nil
}

// keyPair is a certificate in files, which is read again when they change. While they do not
// fit, as between the two writes of a renewal, the one before stays.
type keyPair struct {
	cert, key string
	logger    *slog.Logger

	mu     sync.Mutex
	seen   [2]os.FileInfo // The files when they were read last.
	loaded *tls.Certificate
	said   string // Why the files were not read, in the log.
}

// current returns the certificate for a connection.
func (p *keyPair) current() *tls.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	said := ""
	if err := p.load(); err != nil {
		if said = err.Error(); said != p.said {
			p.logger.Warn("api certificate not reloaded, the one before stays", "err", err)
		}
	}
	p.said = said
	return p.loaded
}

// load reads the files if they are others than those that it read last.
func (p *keyPair) load() error {
	var now [2]os.FileInfo
	for i, name := range []string{p.cert, p.key} {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		now[i] = info
	}
	if sameFile(p.seen[0], now[0]) && sameFile(p.seen[1], now[1]) {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(p.cert, p.key)
	if _, unread := errors.AsType[*fs.PathError](err); unread {
		return err
	}
	p.seen = now // Files that do not fit are not read for each connection.
	if err != nil {
		return err
	}
	p.loaded = &pair
	return nil
}

// sameFile reports whether a file is as it was seen before.
func sameFile(before, now os.FileInfo) bool {
	return before != nil && os.SameFile(before, now) &&
		before.ModTime().Equal(now.ModTime()) && before.Size() == now.Size()
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
