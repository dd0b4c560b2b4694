//go:build verifyleader

package cluster_test

// staleRounds is how often the control may try. It ends at the first stale
// read, which comes within 30 rounds as a rule, and nearly always within 100.
const staleRounds = 150
