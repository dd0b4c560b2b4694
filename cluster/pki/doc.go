// Package pki implements the identity of nodes. It has the cluster's own
// certificate authority, the short-lived certificates with a node's identity
// and role, the join tokens that admit a new node, and their TLS
// configurations.
//
// It does not handle the certificates of the API.
//
// Rules: TLS 1.3 only. Both sides are authenticated, except in the first
// contact of a joining node, whose token pins the authority. A certificate is
// checked by its authority, its validity and its one SPIFFE URI; host names and
// addresses are ignored. Private keys are Ed25519, on disk with mode 0600.
package pki
