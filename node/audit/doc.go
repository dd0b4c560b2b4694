// Package audit exports audit trails: a server appends each line of all trails to a file
// of JSON lines, from where a log shipper takes it out of the cluster.
//
// The replicated state keeps the newest lines of a trail only. Each server that is
// configured for it exports all of them by itself, so that a lost disk loses no line.
//
// Rules:
//
//   - Lines of one trail are in order. A line may be written twice, after a crash.
//   - Lines that left the state before they were exported are named in the file, as a gap.
//   - The file may be moved away at any time: the next lines make a new one.
package audit
