// Command berth is the program of Berth: a node of a cluster, a whole
// cluster on one machine for development, and the client of both.
//
// Each command has its own file, which reads flags, calls one package and
// prints. Here are those that run a cluster. The commands that start executions are in
// cmd/berth/execution, those that look at them in cmd/berth/inspect, those of operators
// in cmd/berth/admin, those that measure in cmd/berth/benchcmd, and what all share is in
// cmd/berth/cli. Package node
// implements a node, api/client calls its API, and cmd/berth/dev runs the
// processes of a development cluster. Results go to standard output, other
// messages to standard error. --json prints the results as JSON.
//
// Supervisors of sandboxes have a program of their own, cmd/berth-supervisor, which
// make build puts inside this one. In other builds they are this program, and
// never reach main: package early takes them over before the large packages
// initialise. So are the first processes of sandboxes that install packages.
package main
