// Package rpc is how nodes call each other: methods by name over yamux
// streams of one connection that is already authenticated.
//
// It knows nothing of TLS, certificates or addresses (package cluster dials
// and accepts), and nothing of what the methods mean.
//
// Rules: one stream per call. A message is its length (4 bytes, big endian)
// and that many bytes of CBOR; longer than its limit is an error before
// memory is taken for it. Every call has a deadline, which travels with it. A
// compute.Error arrives with its code. A stream method answers like any other
// and then owns the stream.
package rpc
