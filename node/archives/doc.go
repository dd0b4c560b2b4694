// Package archives moves finished executions out of the replicated state and reads
// them again.
//
// The leader's Archiver makes an archive durable on most servers before the state
// forgets its executions. Any server's Cache opens archives for reads of old
// executions. An archive that cannot be read is an error; it is never treated as
// empty.
//
// What is due and the format of an archive are package fsm's business; where blobs
// lie is package storage's.
package archives
