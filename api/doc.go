// Package api serves Berth's REST API over fasthttp, the same on every node:
// it turns requests into commands of the state machine and views of the state
// into answers.
//
// It is not where decisions are made: a limit, a price or a right that matters
// is checked again when the command is applied. It knows nothing of Raft,
// files or other nodes: package node hands it a Proposer, a Reader, Logs and
// Blobs.
//
// Rules. One table, in routes.go, is the source of the routes, of what each
// needs of its caller, of the bodies that are accepted and of the documents
// (/openapi.json, docs/api.md). What fasthttp hands over is copied before a
// handler sees it (request.go), because its buffers are used again. Every request
// has a deadline. A request reads one view: the credential, the rights and the
// data of an answer are of the same instant. Answers are structs of package
// wire, and nothing else leaves. Anything that grows has a limit in Limits or
// in the const block of its file.
package api
