// Package storage keeps blobs: immutable bytes under the name of their own
// SHA-256, such as the code of an execution that is too large for its command.
//
// A Store is one node's disk: DataDir/blobs/ab/<sha256>, written beside,
// fsynced and renamed, so that a blob is there whole or not at all. Blobs is
// the cluster's view: every blob is on several nodes, chosen by rendezvous
// hashing, durable there before Put returns, read from whichever has it, and
// healed from another one when a disk returns other bytes. Once nodes join or
// leave, or before one leaves, Lacking says what the others are to Keep.
//
// It knows no owner, no name and no size beyond MaxBlob: those are records in
// package fsm, which also says, at a sweep, what is still used. It knows no
// RPC: streams to other nodes come from Peers.
//
// Rules: no byte is returned or acknowledged that does not hash to its name;
// only hashes become paths; what a crash left half-written is gone at Open.
package storage
