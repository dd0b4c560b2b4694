// Package submission turns the start of an execution, of whatever kind, into a record
// and submits it: what a server of the cluster does not know yet is refused, code and
// files become a bundle, stored files are copied into it, credentials of registries are
// sealed, and the command is proposed.
//
// It is not for the routes of starts: packages execution and deployment have those, and
// set on the record what their kind has beside.
//
// Rules. Nothing is stored of a start that the state refuses: large bundles are checked
// before they are encoded and before they take space. A repeat gets the first answer
// and stores nothing.
package submission
