// Package early runs a supervisor, or the first process of a sandbox, before the
// rest of the binary initialises. It exports nothing; importing it is enough.
//
// The binary's main imports it blank, and so do tests that start attempts. It and
// its dependencies may import only the standard library and the light packages of
// Berth: boottime, compute, fault, loop and node/logs. Every other import would
// make it wait until the big packages are initialised. A test bounds the cost of
// the start.
package early
