// Package live has the attempts of a node: what is known of each while it is
// prepared or supervised, its directory, its cgroup and its turn to start.
//
// It is not for what happens to them: package prepare makes them ready to start,
// and package executor follows them to their ends. Its rule: a field of an Attempt
// that changes is behind a method that locks.
package live
