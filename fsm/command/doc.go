// Package command has the commands that can be proposed to the replicated state, each with
// its row in the table of commands; their results; and the frames in which they travel.
//
// It is not for deciding a command: package fsm has a function that applies each.
//
// Its rules: a payload is data, with numbered CBOR fields, and carries what Apply may not
// make: ids, instants of the caller, random bytes. The numbers of commands and of fields are
// on every disk and are never used again. A command or a field that is added has a format
// (package format), so that it is proposed only once every server can apply it. The package
// reads no state.
package command
