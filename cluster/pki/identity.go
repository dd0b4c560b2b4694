package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"berth/compute"
)

// Identity is the identity of a certificate's holder.
type Identity struct {
	Cluster compute.UUID
	Role    compute.Role
	Node    compute.NodeID
}

// errIdentity means that a certificate does not have exactly one SPIFFE URI.
var errIdentity = errors.New("the certificate names no node of a cluster")

// URI returns spiffe://<cluster>/<role>/<node>.
func (i Identity) URI() *url.URL {
	return &url.URL{
		Scheme: "spiffe",
		Host:   i.Cluster.String(),
		Path:   "/" + i.Role.String() + "/" + i.Node.String(),
	}
}

// IdentityOf returns the identity in a certificate whose chain was verified.
func IdentityOf(cert *x509.Certificate) (Identity, error) {
	if len(cert.URIs) != 1 || cert.URIs[0].Scheme != "spiffe" {
		return Identity{}, errIdentity
	}
	uri := cert.URIs[0]
	var id Identity
	role, node, ok := strings.Cut(strings.TrimPrefix(uri.Path, "/"), "/")
	if !ok {
		return Identity{}, errIdentity
	}
	if err := id.Role.UnmarshalText([]byte(role)); err != nil {
		return Identity{}, fmt.Errorf("read identity: %w", err)
	}
	var err error
	if id.Node, err = compute.ParseNodeID(node); err != nil {
		return Identity{}, fmt.Errorf("read identity: %w", err)
	}
	if id.Cluster, err = compute.ParseUUID(uri.Host); err != nil {
		return Identity{}, fmt.Errorf("read identity: %w", err)
	}
	return id, nil
}
