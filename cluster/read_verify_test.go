//go:build verifyleader

package cluster_test

// staleRounds is how often the control may try. It ends at the first stale
// read, which comes in the first dozens as a rule.
const staleRounds = 400
