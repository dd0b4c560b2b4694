// Package datadir is the data directory of a node: its lock, the paths in it,
// and node.json, the record of the node's identity and membership.
//
// It is not for the replica in DATA_DIR/raft; packages disk and replica read
// that. Certificates belong to package pki, the gossip keyring to package
// gossip.
//
// Rules: one process holds the directory at a time. The record is written
// atomically with a checksum, and an update never loses a concurrent one.
package datadir
