// Package trace reads clusters and workloads from CSV files whose columns are
// those of the public openb trace: a list of nodes and a list of pods.
//
// Columns are found by their names in the header, in any order; columns that
// nobody knows are passed over. A value that cannot be is an error that names
// the file, the line and the column, and says what would be right: a benchmark
// on half a trace is worse than none.
//
// It is not for load: what the pods of a trace make of a cluster, how fast
// they come and how long they stay, is up to who reads them.
package trace
