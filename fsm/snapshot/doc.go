// Package snapshot is the format of snapshots and backups of the state: framing,
// lengths and checksums of encoded records.
//
// It is not for the content of records, which package fsm encodes and checks.
//
// Rules: a stream that ends early, goes on behind its end or has other bytes than
// were written is an error that wraps ErrDamaged. Neither reader holds more than one
// block or record in memory.
package snapshot
