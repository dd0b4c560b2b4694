// Package engine describes the programs that serve models: the commands that start them,
// which formats they load, which arguments a user may add, and where they answer.
//
// It is not for starting them (package executor) nor for the files of models (package
// weights).
//
// Rules: everything is pure. An argument of a user is refused unless it is on the engine's
// list, with a value of the kind that the list names. No kind can hold a path, a URL or
// a host, so that no argument opens a port, reads a file or replaces the model.
package engine
