// Package edge takes requests of the REST API from a connection to a handler,
// and the handler's answer back, the same on every node. The handlers are in packages
// beside it: edge knows no endpoint, only the rows of their table (route.go).
//
// On the way in, a request whose framing is ambiguous is refused (request.go). Its
// body is read within a budget (bodies.go), its credential is checked in one view of
// the state (access.go, view.go), a repeat is recognised (operations.go), and its
// rate is limited (ratelimits.go). On a node without a replica it is relayed to a
// server (relay.go). A request that takes much memory waits for its turn (turns.go).
// On the way back errors become statuses (errors.go) and answers bytes (reply.go,
// answers.go, streams.go). Below it, package answer makes lists, files and events,
// package connection has the deadlines and the ends of connections, package limit what
// is bounded, and package openai the protocol of requests to models.
//
// Rules. It never imports handlers. It alone uses fasthttp, whose buffers are used
// again, so all data for handlers is copied. A request reads one view: the
// credential, the rights and the data of an answer are of the same instant. Every
// request has a deadline, and what is held longer counts as a stream
// (streams.go). Anything that grows has a limit in Limits or in the const block
// of its file.
//
// The tests of package api go through this package over HTTP; here are those of
// what is not seen from there.
package edge
