// Package disk is what Raft keeps on disk: its log and its few values, with
// checksums that the library's own store does not have, a bounded cache of
// recent entries in front, and a watch for writes that hang.
//
// It is not for snapshots, which the library stores and checks well, except
// that CheckGap compares them with the log before Raft would panic.
//
// Rules: what is read back is what was written, or an error that wraps
// ErrCorrupt; nothing is ever repaired here. A write has happened when it
// returned nil. Whoever opens the log says what ends the process.
package disk
