// Package series keeps what attempts do with their GPUs, processors and memory, second
// by second.
//
// A Recorder appends one Point a second to a file beside each attempt's output. A file
// holds at most MaxPoints: when it is full, pairs of points become one and each point
// stands for twice the time. So an attempt of any length costs 200 KB at most, and its
// first hour is kept by the second. A Store reads the files of its node, thinned to the
// step that is asked for, and goes with them. An Archive of a series is a blob, which the
// record of the execution refers to.
//
// The package knows nothing of Raft, RPC or HTTP. Values that cannot be measured are NaN
// on disk, and absent in answers.
package series
