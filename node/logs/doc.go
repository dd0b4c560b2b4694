// Package logs keeps what executions print: a Writer appends it beside the
// attempt, a Store reads it from the node's own disk, and a Follower follows
// an execution from any node.
//
// The Writer lives in the attempt's supervisor, a process with a start-up
// budget of milliseconds, so this package imports the standard library and
// compute alone, and of the library no path/filepath: many packages wait for
// that one to be initialised, and the supervisor would wait for them. It knows
// nothing of Raft, of RPC or of HTTP: where an attempt is and whether it ended
// comes from a State, streams to other nodes come from Peers.
//
// Rules: every record carries a CRC and a number, numbers of an attempt start
// at 1 and have no gaps; what is dropped (rate, ring, damage) is replaced by a
// visible mark that counts it; disk, memory and frames have named limits; a
// resume at any number neither repeats nor misses a line.
package logs
