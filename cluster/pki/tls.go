package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"berth/compute"
)

// ErrPin means that a join token names another authority than the server's.
var ErrPin = errors.New("the certificate authority there is not the one that the join token names: " +
	"make a token in the cluster that is to be joined, with berth admin token create")

// ServerConfig returns the TLS configuration of a node that listens for protos.
// Every handshake calls pair for the current certificate, so a renewal needs no
// restart. A client without a certificate passes the handshake: the caller
// decides what it may do.
func ServerConfig(ca *CA, pair func() *tls.Certificate, now func() time.Time, protos ...string) *tls.Config {
	clients := x509.NewCertPool()
	clients.AddCert(ca.Cert)
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             protos,
		ClientAuth:             tls.VerifyClientCertIfGiven,
		ClientCAs:              clients,
		Time:                   now,
		SessionTicketsDisabled: true, // Each connection is verified.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return pair(), nil
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			if state.NegotiatedProtocol == "" {
				return errors.New("the client offers no protocol that this node speaks")
			}
			return nil
		},
	}
}

// ClientConfig returns the TLS configuration of a node that dials with proto.
// The other side must hold a certificate of ca, and check must accept its
// identity.
func ClientConfig(
	ca *CA, pair func() *tls.Certificate, now func() time.Time, proto string, check func(Identity) error,
) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{proto},
		// Names and addresses are irrelevant; VerifyConnection checks the chain
		// and the identity instead.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			id, err := ca.Verify(state.PeerCertificates[0], now())
			if err != nil {
				return err
			}
			return check(id)
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return pair(), nil
		},
	}
}

// PinnedConfig returns the TLS configuration of a joining node. It has no
// certificate yet and knows the authority only by its pin. It accepts any
// server of that authority.
func PinnedConfig(pin string, now func() time.Time, proto string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		NextProtos:         []string{proto},
		InsecureSkipVerify: true, // VerifyConnection checks the pin instead.
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := verifyPinned(state.PeerCertificates, pin, now())
			return err
		},
	}
}

// verifyPinned returns the authority with the given pin that signed the first
// certificate, which must be a server's.
func verifyPinned(chain []*x509.Certificate, pin string, now time.Time) (*CA, error) {
	for _, cert := range chain[1:] {
		if pinOf(cert) != pin || !cert.IsCA {
			continue
		}
		ca := &CA{Cert: cert}
		id, err := ca.Verify(chain[0], now)
		if err != nil {
			return nil, err
		}
		if id.Role != compute.RoleServer {
			return nil, fmt.Errorf("a %s answered where a server was expected", id.Role)
		}
		return ca, nil
	}
	return nil, ErrPin
}
