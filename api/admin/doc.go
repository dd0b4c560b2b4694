// Package admin has the endpoints for those who operate the cluster: nodes and join
// tokens, the Raft configuration and backups, replays of scheduling and what-if
// questions, the circuit breaker for rescheduling, the rotation of keys, and the probes
// of a node with its metrics.
//
// It is not for what operators do to organizations, users, prices and models: those
// routes are in the packages of what they are about.
//
// Rules. A route needs the rights of an operator, but for probes, which answer without
// the state and for this node alone.
package admin
