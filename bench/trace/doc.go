// Package trace reads clusters and workloads from CSV files with the columns of
// the public openb trace: a list of nodes and a list of pods.
//
// Columns are found by their names in the header, in any order. Unknown columns
// are ignored. An invalid value is an error that names the file, the line, the
// column and the valid values: a benchmark on half a trace is worse than none.
//
// The package does not generate load. Its callers decide the rate of arrivals
// and the runtime of pods.
package trace
