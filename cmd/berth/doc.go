// Command berth is the one program of Berth: a node of a cluster, a whole
// cluster on one machine for development, and the client of both.
//
// Each command has its own file, which reads flags, calls one package and
// prints. The commands of operators are in cmd/berth/admin, those that measure
// in cmd/berth/benchcmd, and what all share is in cmd/berth/cli. Package node
// implements a node, api/client calls its API, and cmd/berth/dev runs the
// processes of a development cluster. Results go to standard output, other
// messages to standard error. --json prints the results as JSON.
//
// A process that was started to supervise an execution never reaches main:
// package early takes it over before the large packages initialize.
package main
