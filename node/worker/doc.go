// Package worker connects a node's executor to its attempts: it tells the executor
// which attempts to execute and takes its reports to the state.
//
// A server reads its attempts in its own replica (ReplicaSource). A node of role
// worker holds no replica: it long-polls servers (Assignments), reports to them
// (Reporter), reads bundles and models from them (Bundles, Models) and relays requests
// of its API to them (Relay). Server and ServeRelay are the servers' side of that protocol.
//
// A server identifies a worker by its certificate alone. It refuses requests about
// attempts of other nodes, and sends no more of an execution than executing it
// takes.
//
// The package executes nothing and decides nothing about attempts. Names of methods
// and CBOR numbers are a wire format between versions.
package worker
