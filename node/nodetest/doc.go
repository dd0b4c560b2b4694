// Package nodetest runs clusters of real nodes on loopback for tests: real
// Raft over mutual TLS, real gossip, real HTTP, data on disk, simulated GPUs.
//
// New runs the nodes within the test's own process. Start runs each as a
// process of its own, which a test can kill. Only tests import it, and a test
// binary that does calls Main from its TestMain, since supervisors and node
// processes are the test binary executed again.
package nodetest
