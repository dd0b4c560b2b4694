// Package berth is a client of Berth's REST API, for programs in Go that execute code on
// a cluster or operate one.
//
// A Client knows the addresses of one or more nodes. Any of them answers any call. A
// call moves on to the next address when one is gone or reports that it cannot serve
// now. It backs off when all of them do, and gives up after Config.RetryFor. Calls that
// change state carry an Idempotency-Key that stays the same over these retries: a call
// that succeeds took effect once. A stream of output resumes on another node at the
// same sequence number.
//
//	c, err := berth.New(berth.Config{Addrs: []string{"https://10.0.0.1:6470"}, Token: key})
//	...
//	e, err := c.Run(ctx, berth.PythonStart{Code: "print(42)", GPUTypes: []string{"a100"}}, os.Stdout, os.Stderr)
//
// The calls stand in groups, as c.Executions.GetExecution; docs/api.md describes each.
// For all else, such as an answer as CSV, there are Do, Fetch and Save.
//
// A refusal is an *Error with a stable Code. The package reads no flags, environment
// variables or files, prints nothing, follows no redirect, and needs nothing but the
// standard library.
package berth
