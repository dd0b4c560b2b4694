// Package archives moves finished executions out of the replicated state and reads
// them again.
//
// The leader's Archiver makes an archive durable on most servers before the state
// forgets its executions. Any server's Cache opens archives for reads of old
// executions. An archive that cannot be read is an error; it is never treated as
// empty.
//
// Package fsm decides which executions are due and defines the format. Package
// storage
// stores the blobs.
package archives
