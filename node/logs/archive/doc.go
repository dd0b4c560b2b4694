// Package archive keeps what ended attempts printed once a node has no more space or
// time for it: compressed, and stored among the objects of its organization.
//
// A node that is about to remove output, its own or a copy of another node's, calls Keep
// first, and removes it only once the state says where it is archived. Readers, in package
// logs, look in the archive before they ask nodes, so that no moment lacks the output. What
// is archived is encrypted with the key of the organization's bucket, and is where the
// objects are: on several nodes, or in an object store. It goes with its execution's record,
// and by age beyond a limit of bytes.
//
// Rules:
//
//   - Output that is being archived stays where it is until that is durable and known.
//   - Of two archives of an attempt, one that lacks the end is replaced by a whole one,
//     never the other way round.
//   - Output that is archived and cannot be read is an error. It is never treated as empty.
package archive
