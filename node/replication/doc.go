// Package replication keeps the blobs that the state refers to on the disks of the
// servers.
//
// A server's Repairer fetches the archives and its share of the bundles from
// other servers whenever servers join, leave, fail or return, and takes the place
// of those whose disks are full. Its Housekeeper removes blobs that nothing refers
// to, and copies that the placement has no use for, and checks the others against
// their names.
//
// Copies refuses the removal of a server while the others lack blobs of which
// it may have the only copies.
//
// Blobs are named by their content, so every round may run at any time,
// repeatedly, or concurrently with a submit. A young blob is never removed: its
// submit may be in progress.
//
// Package storage reads and writes single blobs.
package replication
