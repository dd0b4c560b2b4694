// Package audit exports audit trails: a server appends each line of all trails to a file
// of JSON lines, from where a log shipper takes it out of the cluster.
//
// The replicated state keeps the newest lines of a trail only. Each server that is
// configured for it exports all of them by itself, so that a lost disk loses no line.
//
// Rules:
//
//   - Lines of one trail are in order. Some come twice after a crash, and once the cluster
//     was restored or recovered.
//   - The file says where lines may be missing, because they left the state before they
//     were exported.
//   - Lines that are in the file stay there. It may be moved away at any time: the next lines
//     make a new one.
//   - A file that cannot be written keeps no server from starting or working.
package audit
