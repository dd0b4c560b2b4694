// Package compute is Berth's vocabulary: the nouns that every other package
// speaks (executions, attempts, nodes, GPUs, organizations, keys, credits,
// plans) and the one error type that carries a code to the user.
//
// It imports nothing but the standard library and does no I/O. It decides
// nothing: the rules of when a record may change live in package fsm, where
// work is put in package scheduler. Values here are plain data. A record that
// came out of a view is shared and must not be written to.
//
// Struct tags give each field its number in the CBOR encoding that commands,
// node-to-node calls and snapshots use. A number is never used again.
package compute
