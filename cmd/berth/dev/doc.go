// Package dev runs a whole cluster on one machine, for development and tests: a
// number of node processes on loopback, with simulated GPUs and their state on
// disk.
//
// The directory is the cluster. dev.json holds the settings that stay the same
// over all starts: names, ports, GPUs, password, API key. Each node has a
// directory with its berth.yaml, data and log. cluster.json holds the addresses
// and credentials of the running cluster. It exists only while the cluster
// runs, and is replaced atomically when the leader or a process changes.
//
// Processes of the cluster are found by their command line, which names the
// directory, and never by a stored process id. So no other process is
// signaled, and all of them are found after any crash. A guard process ends
// them if the process that started them is killed.
//
// In production a service manager runs one `berth node` per machine instead. No
// other package of cmd starts processes.
package dev
