// Package copies keeps a second copy of the output of executions on another node, so
// that it survives the machine that it was written on.
//
// A node's Sender pushes what its attempts print to one other node each: at least twice
// a second while there is new output, and the rest once the attempt has ended. That node
// is chosen by rendezvous hashing over the nodes that are up. When it goes down, the next
// one gets a whole copy. A node's Store appends what others push to files that are the
// same, byte for byte, so that package logs reads them as the output itself.
//
// Rules:
//
//   - A copy is a prefix of the output, in whole records, with the same ring: its numbers
//     are the output's.
//   - Copies are kept under the name of the node that pushed them, which its certificate
//     proves. No node can change the copy of another's output.
//   - A copy is not fsynced: it is for the loss of one machine, not of all at once.
//   - Both sides are level-triggered: the receiver answers each piece with how far its copy
//     goes, and the sender continues there.
//   - Pieces, memory, transfers at a time and the size and age of copies are bounded.
package copies
