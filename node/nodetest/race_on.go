//go:build race

package nodetest

// raced reports whether this program runs under the race detector.
const raced = true
