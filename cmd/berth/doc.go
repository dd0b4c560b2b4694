// Command berth is the one program of Berth: a node of a cluster, a whole
// cluster on one machine for development, and the client of both.
//
// Each command has a file of its own, which reads flags, calls one package and
// prints. What a node is lives in package node, how its API is called in
// api/client, how processes are kept in cmd/berth/dev. Everything for people
// goes to standard error or, where it is what was asked for, to standard
// output; --json gives programs the same as JSON.
//
// A process that was started to supervise an execution never reaches main: the
// early package takes it over before the big packages initialise.
package main
