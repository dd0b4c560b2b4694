// Package api puts Berth's REST API together: one table of the routes of all groups,
// the server that answers them, and the documents that follow from the table
// (/openapi.json, /docs, docs/api.md).
//
// It is not for endpoints. Handlers turn requests into commands of the state machine
// and views of the state into answers, in a package for the groups of each subject:
// account, admin, billing, deployment, execution and storage. Package edge brings them
// the requests, package handler has what they share, and New puts all together.
//
// Nor are handlers where decisions are made: a limit, a price or a right that matters
// is checked again when the command is applied. They know nothing of connections, Raft,
// files or other nodes: edge has the first, and package node hands them a Proposer, a
// Reader, Logs and Blobs.
//
// Rules. Each group of the specification is a file and a type. The table, made of their
// rows, is the source of the routes, of what each needs of its caller, of the bodies
// that are accepted and of the documents. Groups do not import each other, except that
// deployments build on executions. Answers are structs of package wire, and nothing
// else leaves. Anything that grows has a limit in edge.Limits or in the const block of
// its file.
//
// The tests of all handlers are here, and go through the whole server over HTTP. Beside
// the handlers are those of what is not seen from there.
package api
