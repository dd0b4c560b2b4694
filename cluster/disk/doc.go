// Package disk stores Raft's log and its stable values. It adds checksums,
// which the library's own store lacks, a bounded cache of recent entries, and a
// watchdog for writes that hang.
//
// It wraps the library's snapshot store, and adds a checksum for the meta data,
// syncs during the write, and repeated checks. CheckGap compares snapshots with
// the log before Raft would panic.
//
// Rules: a read returns the bytes that were written, or an error that wraps
// ErrCorrupt. The package never repairs data. A write is durable when it has
// returned nil. The opener of the log decides which errors end the process.
package disk
