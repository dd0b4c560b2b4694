// Package compute is Berth's vocabulary: the types that all other packages
// share (executions, attempts, nodes, GPUs, organizations, keys, credits,
// plans) and the one error type that carries a code to the user.
//
// It imports only the standard library and does no I/O. It makes no decisions:
// package fsm has the rules for changes of records, and package scheduler
// places work. Values here are plain data. A record that came out of a view is
// shared and must not be written to.
//
// Struct tags give each field its number in the CBOR encoding that commands,
// node-to-node calls and snapshots use. A number is never reused.
package compute
