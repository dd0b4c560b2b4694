// Package world runs clusters of real berth processes, each as if on its own
// machine, whose machines, disks and networks can be broken. Each node has its
// own network namespace on a bridge, and its own file system in a loop image.
// The package needs Linux and root.
//
// Only the network namespace is a node's own. All nodes share this machine's
// file system and cgroups, so that executions run as they do in production.
//
// The names of a world's kernel objects contain the number of its slot ("bf3",
// "bf3-n1"). A lock guards each slot. The next world in a slot removes the rest
// of a killed world there. A world kills only processes that name its
// directory.
//
// Package faults decides which faults to inject, and checks the outcome.
package world
