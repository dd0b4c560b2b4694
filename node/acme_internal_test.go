package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"

	"berth/node/config"
)

const acmeHost = "n1.lab.example"

// TestAuthorityGivesTheCertificate has Pebble, the test server of Let's Encrypt, give the
// API its certificate: it resolves the name and connects to this node, which proves by
// TLS-ALPN-01 that the name is its own.
func TestAuthorityGivesTheCertificate(t *testing.T) {
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "0")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	directory, roots := startAuthority(t, listener.Addr().(*net.TCPAddr).Port)
	dir := t.TempDir()
	n := &Node{cfg: config.Config{DataDir: dir}}
	n.cfg.API.TLS.ACME = config.ACME{
		Hosts: []string{acmeHost}, Directory: directory.URL + wfe.DirectoryPath, CAFile: filepath.Join(dir, "directory.pem"),
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: directory.Certificate().Raw})
	if err := os.WriteFile(n.cfg.API.TLS.ACME.CAFile, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	served, err := n.apiTLS()
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ready") }),
		ErrorLog: slog.NewLogLogger(slog.NewTextHandler(t.Output(), nil), slog.LevelInfo),
	}
	go func() { _ = server.Serve(tls.NewListener(listener, served)) }()
	t.Cleanup(func() { _ = server.Close() })

	if _, err := serialOf(t, listener.Addr().String(), "other.example", roots()); err == nil {
		t.Error("a name that is not the node's got a certificate")
	}
	first, err := serialOf(t, listener.Addr().String(), acmeHost, roots())
	if err != nil {
		t.Fatal(err)
	}

	// A node that starts again has kept it.
	directory.Close()
	if served, err = n.apiTLS(); err != nil {
		t.Fatal(err)
	}
	again, err := tls.Listen("tcp", "127.0.0.1:0", served)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(again) }()
	second, err := serialOf(t, again.Addr().String(), acmeHost, roots())
	if err != nil || second != first {
		t.Errorf("after a restart the certificate is %s, before it was %s: %v", second, first, err)
	}
}

// startAuthority starts an ACME authority that connects to a port of this machine,
// whatever the name, and returns its directory and the roots of what it signs.
func startAuthority(t *testing.T, port int) (*httptest.Server, func() *x509.CertPool) {
	t.Helper()
	resolver, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	names := &dns.Server{Listener: resolver, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, asked *dns.Msg) {
		answer := new(dns.Msg).SetReply(asked)
		if q := asked.Question[0]; q.Qtype == dns.TypeA {
			answer.Answer = append(answer.Answer, &dns.A{
				Hdr: dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: q.Qclass}, A: net.IPv4(127, 0, 0, 1),
			})
		}
		_ = w.WriteMsg(answer)
	})}
	go func() { _ = names.ActivateAndServe() }()
	t.Cleanup(func() { _ = names.ShutdownContext(context.Background()) })

	logger := slog.NewLogLogger(slog.NewTextHandler(t.Output(), nil), slog.LevelInfo)
	store := db.NewMemoryStore()
	signer := ca.New(logger, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {}})
	checker := va.New(logger, 1, port, false, resolver.Addr().String(), store)
	front := wfe.New(logger, store, checker, signer, []string{"authority.example"}, false, false, 1, 1)
	directory := httptest.NewTLSServer(front.Handler())
	t.Cleanup(directory.Close)
	return directory, func() *x509.CertPool {
		pool := x509.NewCertPool()
		pool.AddCert(signer.GetRootCert(0).Cert)
		return pool
	}
}

// serialOf asks a server for its certificate for a name, and returns its serial number.
func serialOf(t *testing.T, address, name string, roots *x509.CertPool) (string, error) {
	t.Helper()
	dialer := &tls.Dialer{Config: &tls.Config{ServerName: name, RootCAs: roots, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}
