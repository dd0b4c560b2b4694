// Package storage keeps blobs: immutable bytes under the name of their own
// SHA-256, such as the code of an execution that is too large for its command.
//
// A Store is one node's disk: DataDir/blobs/ab/<sha256>. A blob is written to a
// temporary file, fsynced and renamed, so that it is on the disk whole or not
// at all.
//
// Blobs is the cluster's view. Every blob is on several nodes, chosen by
// rendezvous hashing, and durable there before Put returns. It is read from any
// node that has it, or from a mirror outside of the cluster, and healed when a disk
// returns other bytes. When nodes join or leave, or before one leaves, Lacking lists the
// blobs that a node has to Fetch, and Trim removes those that it need not have.
//
// The package knows no owner, no name and no size beyond MaxBlob: those are
// records in package fsm, which also reports to a sweep which blobs are used.
// It knows no RPC: Peers opens streams to other nodes.
//
// Rules:
//
//   - Bytes that do not hash to their name are neither returned nor acknowledged. Only
//     Peek returns them, to callers that authenticate what they read.
//   - Only hashes become paths.
//   - Open removes the half-written files of a crash.
package storage
