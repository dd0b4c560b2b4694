// Package weights brings the files of models to a node: from the storage of an
// organization, from a directory of the operator, or from a hub of models.
//
// It is not for the programs that load them (package engine).
//
// Rules: a model is fetched once, into a directory that is complete or not there, and
// that sandboxes see read-only. Every byte is checked against the hash that its source
// names. A file without one needs the operator's leave, and the deployment's log names it.
// Files that could hold code are not fetched. Files that were fetched with a token are for
// the organization of the token alone. No token is written or logged.
package weights
