// Package router finds the way to services: it picks a ready replica for a request
// and has it answer.
//
// It is not for credentials or headers (package edge), nor for connections between
// nodes: the caller of New passes a function that dials.
//
// Rules: everything is read from one view of the state, on the node that got the
// request, so that there is one hop at most. A replica to which no connection can be
// made has got nothing of the request, and another one is tried. No request is sent
// twice otherwise. A replica is stopped once no node has requests under way there, or
// after a limit: its node asks the routers of all servers (Drain).
package router
