// Package pki is the identity of nodes: the cluster's own certificate
// authority, the short-lived certificates that say which node someone is and
// what it may do, the join tokens that admit a new node, and the TLS
// configurations made of them.
//
// It is not for the certificates of the API, which face users.
//
// Rules: TLS 1.3 only, both sides authenticated but for the first contact of
// a node that joins, which is pinned to the authority by its token. A
// certificate is judged by its authority, its time and its one SPIFFE URI;
// host names and addresses mean nothing. Private keys are Ed25519, on disk
// with mode 0600.
package pki
