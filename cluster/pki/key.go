package pki

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"berth/cluster/file"
)

// Names of the files in a pki directory.
const (
	caCertFile = "ca.crt"
	caKeyFile  = "ca.key"
	certFile   = "node.crt"
	keyFile    = "node.key"
)

// NewKey returns a new private key of a node.
func NewKey(random io.Reader) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(random)
	if err != nil {
		return nil, fmt.Errorf("make node key: %w", err)
	}
	return key, nil
}

// NewRequest returns a certificate signing request in DER for key.
func NewRequest(random io.Reader, key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(random, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate signing request: %w", err)
	}
	return der, nil
}

// Pair returns a node's TLS certificate chain: its certificate and the
// authority's. A joining node needs the latter to check its token's pin.
func Pair(cert *x509.Certificate, key ed25519.PrivateKey, ca *CA) *tls.Certificate {
	return &tls.Certificate{
		Certificate: [][]byte{cert.Raw, ca.Cert.Raw},
		PrivateKey:  key,
		Leaf:        cert,
	}
}

// SaveCA writes the authority to dir.
func SaveCA(dir string, ca *CA) error {
	certPEM, keyPEM := ca.PEM()
	if err := file.WriteSealed(filepath.Join(dir, caCertFile), certPEM); err != nil {
		return fmt.Errorf("save authority: %w", err)
	}
	if keyPEM == nil {
		return nil
	}
	if err := file.WriteSealed(filepath.Join(dir, caKeyFile), keyPEM); err != nil {
		return fmt.Errorf("save authority: %w", err)
	}
	return nil
}

// LoadCA reads the authority that SaveCA wrote.
func LoadCA(dir string) (*CA, error) {
	certPEM, err := file.ReadSealed(filepath.Join(dir, caCertFile))
	if err != nil {
		return nil, loadCAError(err)
	}
	keyPEM, err := file.ReadSealed(filepath.Join(dir, caKeyFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, loadCAError(err)
	}
	ca, err := ParseCA(certPEM, keyPEM)
	if err != nil {
		return nil, loadCAError(err)
	}
	return ca, nil
}

// loadCAError adds where to get the authority from.
func loadCAError(err error) error {
	return fmt.Errorf("load authority, which is the same on every server and can be copied from another: %w", err)
}

// SavePair writes a node's certificate and key to dir. It writes the key first,
// so that LoadPair detects the mismatch after a crash between the two.
func SavePair(dir string, pair *tls.Certificate) error {
	key, ok := pair.PrivateKey.(ed25519.PrivateKey)
	if !ok {
		return errors.New("save node certificate: the key is not Ed25519")
	}
	if err := SaveKey(dir, key); err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Leaf.Raw})
	if err := file.WriteSealed(filepath.Join(dir, certFile), text); err != nil {
		return fmt.Errorf("save node certificate: %w", err)
	}
	return nil
}

// LoadPair reads the pair that SavePair wrote.
func LoadPair(dir string, ca *CA) (*tls.Certificate, error) {
	certPEM, err := file.ReadSealed(filepath.Join(dir, certFile))
	if err != nil {
		return nil, fmt.Errorf("load node certificate: %w", err)
	}
	cert, err := parseCert(certPEM)
	if err != nil {
		return nil, fmt.Errorf("load node certificate: %w", err)
	}
	key, err := LoadKey(dir)
	if err != nil {
		return nil, err
	}
	if !key.Public().(ed25519.PublicKey).Equal(cert.PublicKey) {
		return nil, errors.New("load node certificate: the key is not the certificate's")
	}
	return Pair(cert, key, ca), nil
}

// SaveKey writes a node's key to dir before the node has a certificate for it.
func SaveKey(dir string, key ed25519.PrivateKey) error {
	if err := file.WriteSealed(filepath.Join(dir, keyFile), keyToPEM(key)); err != nil {
		return fmt.Errorf("save node key: %w", err)
	}
	return nil
}

// LoadKey reads the key that SaveKey or SavePair wrote.
func LoadKey(dir string) (ed25519.PrivateKey, error) {
	text, err := file.ReadSealed(filepath.Join(dir, keyFile))
	if err != nil {
		return nil, fmt.Errorf("load node key: %w", err)
	}
	key, err := parseKey(text)
	if err != nil {
		return nil, fmt.Errorf("load node key: %w", err)
	}
	return key, nil
}

func keyToPEM(key ed25519.PrivateKey) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic("pki: an Ed25519 key cannot be encoded: " + err.Error())
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func parseKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no PEM block in the key")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("the key is not Ed25519")
	}
	return private, nil
}

func parseCert(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no PEM block in the certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}
