// Package program has the program that supervisors of sandboxes and the first
// processes of sandboxes execute. A build with the tag supervisor, as make build
// makes, has it inside: cmd/berth-supervisor, a static program of 3 MB that starts
// in a third of the time that the whole binary takes. Other builds execute
// themselves again.
package program
