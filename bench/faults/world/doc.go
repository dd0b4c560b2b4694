// Package world is a cluster of real berth processes as if on machines of their
// own, in a place where machines, disks and networks can be broken: each node
// lives in a network namespace on a bridge and keeps its data on a file system
// of its own in a loop image. It needs Linux and root.
//
// Only the network namespace is a node's own: its file system and cgroups are
// this machine's, so that executions run as they do in production.
//
// What a world makes carries the number of its slot ("bf3", "bf3-n1"), which it
// holds by a lock; what a world that was killed left behind is removed by the
// next one that takes the slot. It ends only processes that name its directory.
//
// It decides nothing: what is broken when, and what follows from it, is package
// faults' business.
package world
