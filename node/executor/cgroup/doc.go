// Package cgroup bounds what the processes of one attempt may use together:
// memory, CPU and processes, on cgroup v2 and on the v1 (and hybrid) layout,
// behind one type. A Group answers what they used and whether the kernel ended
// one of them for want of memory, and ends all of them at once.
//
// Groups of all nodes of a machine are siblings in one directory, berth, at
// the root of each hierarchy: a node's own limits do not bound its attempts,
// and the groups outlive the node's process. It knows nothing of attempts, and
// does not touch devices or I/O.
//
// It imports the standard library only: supervisors load it before the rest of
// the binary initialises.
package cgroup
