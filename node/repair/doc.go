// Package repair changes the data directory of a stopped server. It verifies and
// restores backups, and makes a server recover without a quorum, join again
// empty, or skip a log entry that cannot be applied.
//
// Each operation has a dry run: without do it only reports what it would change.
// An operation on a running server is refused, because the server holds the lock
// of its data directory.
//
// The list of skipped entries is also read when a server starts (Guard) and when
// a second state machine is built beside it (NewMachine).
//
// The package does not repair running clusters. Package cluster and its
// children handle membership and divergence.
package repair
