// Package load measures a running cluster of real processes through its API: its cost
// when idle, how fast it executes code, and how fast it answers. Each figure has a
// reference that is measured in the same run, or the processor time that it cost, so
// that figures of different machines can be compared.
//
// It starts no cluster: a command does, and names the processes.
package load
