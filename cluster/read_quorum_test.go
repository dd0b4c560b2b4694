//go:build !verifyleader

package cluster_test

// staleRounds is how often TestReadsAreNotStale stops the leader.
const staleRounds = 26
