// Package workers measures a cluster with many workers on this machine: their
// cost when idle, and whether each of them runs its executions.
package workers
