// Package progress measures how far the runs of GPU selections are, by the lines of
// progress that they print.
//
// Each node reads the output of its own runs (Reader). The leader asks the nodes
// (Service.Ask) and decides with the answers which runs to stop; that decision is
// package selection's.
package progress
