// Package early sends a process that was started as a supervisor or as the
// first process of a sandbox to its work before the rest of the binary
// initialises. Importing it does everything; it exports nothing.
//
// The binary's main imports it, blank, and so do tests that start attempts. It
// and what it imports may import the standard library, compute and node/logs
// only: every other import puts the initialisation of the big packages in
// front of it. A test holds what that costs.
package early
