//go:build !race

package early_test

// raceEnabled reports that this binary is slower than any node's.
const raceEnabled = false
