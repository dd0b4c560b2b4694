// Package cgroup limits the memory, the CPU time and the number of the processes
// of one attempt. One type serves cgroup v2 and the v1 and hybrid layouts. A
// Group also reports the usage of its processes and their OOM kills, and kills
// all of them at once.
//
// Groups of all nodes of a machine are siblings in one directory, berth, at the
// root of each hierarchy. So a node's own limits do not apply to its attempts,
// and the groups outlive the node's process. The package knows nothing of
// attempts, and does not touch devices or I/O.
//
// It imports only the standard library, because supervisors load it before the
// rest of the binary initialises.
package cgroup
