// Package engine describes the programs that serve models: what starts them, which
// formats they load, which arguments a user may add, and where they answer.
//
// It is not for starting them (package executor) nor for the files of models (package
// weights).
//
// Rules: everything is pure. What a user gives is refused unless it is on the engine's
// list, with a value of the kind that the list names: no kind can hold a path, a URL or
// a host, so that no argument opens a port, reads a file or replaces the model.
package engine
