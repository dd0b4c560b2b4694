// Package replica is a server's copy of the state on disk: opening it with
// every check, scrubbing it, comparing it with other replicas, quarantining
// damaged parts, and recovering it while the server is stopped.
//
// It is not for running Raft or for changing membership. It asks for the few
// things that it needs of the cluster through Config and CompareConfig.
//
// Rules: a replica of another cluster is refused and left alone. A damaged one
// is moved to the quarantine with the reason, never repaired in place. Offline
// commands can be repeated after a crash, and the server does not start before
// they are finished. DESIGN.md beside package cluster has the arguments.
package replica
