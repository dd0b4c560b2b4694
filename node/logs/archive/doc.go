// Package archive keeps what ended attempts printed once a node has no more space or
// time for it: compressed, and stored among the objects of its organization.
//
// A node that is about to remove output, its own or a copy of another node's, calls Keep
// first. It removes the output only once the state records where it is archived. Readers,
// in package logs, read the archive before they ask nodes, so that the output can be read
// at any time. Archived output is encrypted with the key of the organization's bucket. It
// is stored where the objects are: on several nodes, or in an object store. It is removed
// with its execution's record. Beyond a limit of bytes, the oldest output is removed first.
//
// Rules:
//
//   - Output that is being archived stays where it is until that is durable and known.
//   - Of two archives of an attempt, one that lacks the end is replaced by a whole one,
//     never the other way round.
//   - Output that is archived and cannot be read is an error. It is never treated as empty.
package archive
