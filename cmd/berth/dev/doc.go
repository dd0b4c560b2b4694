// Package dev runs a whole cluster on one machine: as many node processes as
// asked for, on loopback, with simulated GPUs and their state on disk.
//
// The directory is the cluster. dev.json keeps what must stay the same from one
// start to the next (names, ports, GPUs, password, API key), each node has a
// directory with its berth.yaml, data and log, and cluster.json tells others
// how to reach what runs now: it is there only while the cluster is, and is
// replaced whole when the leader or a process changes.
//
// A process of the cluster is known by its command line, which names the
// directory, and never by a number written down earlier: so nothing else is
// ever signalled, and all of it is found again after any crash. A guard process
// ends them when the one that started them is killed.
//
// It is for developing and for tests, not for production, where a service
// manager keeps one `berth node` per machine. Only this package, of cmd,
// starts processes.
package dev
