package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/node/config"
)

// mustPair returns a new certificate and its key, as files have them.
func mustPair(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"x"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// TestCertificateIsRenewed replaces the files of the API's certificate one after the other.
// Connections are accepted all the time, and have the new one once both files are there.
func TestCertificateIsRenewed(t *testing.T) {
	t.Parallel() // It has nothing in common with others.
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(name+".new", data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	n := &Node{logger: slog.New(slog.DiscardHandler)}
	n.cfg.API.TLS = config.TLS{Cert: certFile, Key: keyFile}
	if _, err := n.apiTLS(); err == nil {
		t.Error("a node starts without its certificate")
	}
	cert, key := mustPair(t, 1)
	write(certFile, cert)
	write(keyFile, key)
	cfg, err := n.apiTLS()
	if err != nil {
		t.Fatal(err)
	}
	serial := func() int64 {
		t.Helper()
		pair, err := cfg.GetCertificate(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.SerialNumber.Int64()
	}
	cert, key = mustPair(t, 2)
	for _, step := range []struct {
		do   func()
		want int64
	}{
		{func() {}, 1},
		{func() { write(certFile, cert) }, 1},
		{func() { write(keyFile, key) }, 2},
		{func() { write(keyFile, []byte("no key")) }, 2},
		{func() { write(keyFile, key); os.Remove(certFile) }, 2},
		{func() { cert, key = mustPair(t, 3); write(certFile, cert); write(keyFile, key) }, 3},
		{func() {
			cert, key = mustPair(t, 4)
			write(certFile, cert)
			os.Remove(keyFile)
			_ = os.Mkdir(keyFile, 0o700)
		}, 3}, // It cannot be read.
		{func() { os.Remove(keyFile); write(keyFile, key) }, 4},
	} {
		step.do()
		if got := serial(); got != step.want {
			t.Errorf("connections have certificate %d, want %d", got, step.want)
		}
	}
}
