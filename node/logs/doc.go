// Package logs keeps what executions print: a Writer appends it beside the
// attempt, a Store reads it from the node's own disk, and a Follower follows
// an execution from any node.
//
// The Writer lives in the attempt's supervisor, a process with a start-up
// budget of milliseconds. This package therefore imports only the standard
// library and compute. It avoids path/filepath, because the supervisor would
// wait for the initialization of that package's many dependencies. It knows
// nothing of Raft, RPC or HTTP: a State reports where an attempt is and whether
// it ended, and Peers open streams to other nodes.
//
// Rules:
//
//   - Every record carries a CRC and a number. The numbers of an attempt start
//     at 1 and have no gaps.
//   - Lines that are dropped (rate, ring, damage) are replaced by a visible mark
//     that counts them.
//   - Disk, memory and frames have named limits.
//   - A resume at any number neither repeats nor misses a line.
package logs
