// Package transport is the wire of the cluster port: the handshake with the welcome
// that follows TLS, dialling one of several addresses, connections for calls, and
// Raft's transport with the checks that Raft lacks.
//
// It is not for deciding who may connect: package cluster judges peers.
//
// Rules: a dialled node is identified by its certificate, not by its address. Inbound
// never writes to the log, and only Raft checks terms.
package transport
