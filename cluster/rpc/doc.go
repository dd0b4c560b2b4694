// Package rpc implements calls between nodes: named methods over yamux streams
// of one authenticated connection.
//
// It does not handle TLS, certificates or addresses; package cluster dials and
// accepts connections. It does not interpret methods.
//
// Rules: each call has one stream. A message is its length (4 bytes, big
// endian) and that many bytes of CBOR. A message over its limit is an error
// before memory is allocated for it. Every call has a deadline, which the
// request carries. A compute.Error keeps its code. A stream method answers like
// any other and then owns the stream.
package rpc
