package pki

import (
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/url"
	"strings"
	"time"

	"berth/compute"
)

// Lifetimes of certificates.
const (
	LeafLifetime = 72 * time.Hour            // Renewed at half its lifetime.
	caLifetime   = 10 * 365 * 24 * time.Hour // Lifetime of the authority itself.
	clockSlack   = 24 * time.Hour            // Validity begins this long before issue: clocks differ.
	pinLength    = 16                        // Hexadecimal digits of the authority's SHA-256 in a token.
	nameOfCA     = "Berth cluster "          // Followed by the cluster's id.
)

// CA is the cluster's certificate authority. Key is nil on nodes that may
// verify but not sign.
type CA struct {
	Cert *x509.Certificate
	Key  ed25519.PrivateKey
}

// NewCA creates the authority of a new cluster.
func NewCA(random io.Reader, cluster compute.UUID, now time.Time) (*CA, error) {
	public, key, err := ed25519.GenerateKey(random)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	serial, err := newSerial(random)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: nameOfCA + cluster.String()},
		NotBefore:             now.Add(-clockSlack),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	cert, err := sign(random, template, template, public, key)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	return &CA{Cert: cert, Key: key}, nil
}

// ParseCA returns the authority in the PEM texts; keyPEM may be empty.
func ParseCA(certPEM, keyPEM []byte) (*CA, error) {
	cert, err := parseCert(certPEM)
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	if !cert.IsCA {
		return nil, errors.New("read authority: the certificate is not one of an authority")
	}
	if len(keyPEM) == 0 {
		return &CA{Cert: cert}, nil
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	if !key.Public().(ed25519.PublicKey).Equal(cert.PublicKey) {
		return nil, errors.New("read authority: the key is not the certificate's")
	}
	return &CA{Cert: cert, Key: key}, nil
}

// PEM returns the texts that ParseCA parses; keyPEM is nil without a key.
func (a *CA) PEM() (certPEM, keyPEM []byte) {
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Cert.Raw})
	if a.Key == nil {
		return certPEM, nil
	}
	return certPEM, keyToPEM(a.Key)
}

// Cluster returns the authority's cluster, zero if its name does not contain
// the id.
func (a *CA) Cluster() compute.UUID {
	text, _ := strings.CutPrefix(a.Cert.Subject.CommonName, nameOfCA)
	id, err := compute.ParseUUID(text)
	if err != nil {
		return compute.UUID{}
	}
	return id
}

// Pin returns the first hexadecimal digits of the SHA-256 of the authority's
// certificate, as used in join tokens.
func (a *CA) Pin() string { return pinOf(a.Cert) }

// Issue signs a certificate for the holder of public.
func (a *CA) Issue(random io.Reader, id Identity, public crypto.PublicKey, now time.Time) (*x509.Certificate, error) {
	if a.Key == nil {
		return nil, errors.New("issue certificate: this node does not hold the authority's key")
	}
	serial, err := newSerial(random)
	if err != nil {
		return nil, fmt.Errorf("issue certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: id.Node.String()},
		URIs:         []*url.URL{id.URI()},
		NotBefore:    now.Add(-clockSlack),
		NotAfter:     now.Add(LeafLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	cert, err := sign(random, template, a.Cert, public, a.Key)
	if err != nil {
		return nil, fmt.Errorf("issue certificate: %w", err)
	}
	return cert, nil
}

// IssueForRequest signs a certificate for the key of a certificate signing
// request in DER. It uses only the request's key; the caller decides the
// identity.
func (a *CA) IssueForRequest(random io.Reader, id Identity, csr []byte, now time.Time) (*x509.Certificate, error) {
	request, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The certificate signing request cannot be read: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The certificate signing request is not signed by its key: %w", err)
	}
	return a.Issue(random, id, request.PublicKey, now)
}

// Verify returns the identity of cert's holder. This authority must have issued
// the certificate, and it must be valid at now.
func (a *CA) Verify(cert *x509.Certificate, now time.Time) (Identity, error) {
	roots := x509.NewCertPool()
	roots.AddCert(a.Cert)
	_, err := cert.Verify(x509.VerifyOptions{
		Roots:       roots,
		CurrentTime: now,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return Identity{}, fmt.Errorf("verify certificate: %w", Advise(err, now))
	}
	return IdentityOf(cert)
}

// Advise adds a remedy to the error about a certificate that is not accepted
// here.
func Advise(err error, now time.Time) error {
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired {
		text := func(at time.Time) string { return at.UTC().Format(time.RFC3339) }
		return fmt.Errorf("%w; it is valid from %s to %s, and the clock here says %s: if that is wrong, set this clock, "+
			"else the one of the machine that it is from (timedatectl set-ntp true); a machine that was off for longer than "+
			"that joins again, with a join token",
			err, text(e.Cert.NotBefore), text(e.Cert.NotAfter), text(now))
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("%w: the machine there is of another cluster than this one, by its certificate authority: "+
			"correct the address, or copy ca.crt, and on a server ca.key, in DATA_DIR/pki from a server of this cluster", err)
	}
	return err
}

func sign(random io.Reader, template, parent *x509.Certificate, public, key any) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(random, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func newSerial(random io.Reader) (*big.Int, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return nil, err
	}
	b[0] = b[0]&0x7f | 0x40 // Positive, and always 16 bytes.
	return new(big.Int).SetBytes(b[:]), nil
}

func pinOf(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])[:pinLength]
}
