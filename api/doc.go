// Package api has the endpoints of Berth's REST API: handlers turn requests into
// commands of the state machine and views of the state into answers. Package edge
// brings them the requests, New puts both together.
//
// It is not where decisions are made: a limit, a price or a right that matters
// is checked again when the command is applied. It knows nothing of
// connections, Raft, files or other nodes: edge has the first, and package node
// hands it a Proposer, a Reader, Logs and Blobs.
//
// Rules. Each group of the specification is a file and a type. One table, made
// of their rows in routes.go, is the source of the routes, of what each needs of
// its caller, of the bodies that are accepted and of the documents
// (/openapi.json, docs/api.md). Answers are structs of package wire, and nothing
// else leaves. Anything that grows has a limit in edge.Limits or in the const
// block of its file.
package api
