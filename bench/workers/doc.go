// Package workers measures a cluster with many workers that runs on this
// machine: what they cost while nothing is asked, and whether each of them
// executes what it is given.
package workers
