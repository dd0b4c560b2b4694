// Package client is a client of Berth's REST API, for the commands of cmd/berth, the
// benchmark and programs in Go.
//
// A Client knows the addresses of one or more nodes. Any of them answers any call.
// A call moves on to the next address when one is gone or reports that it cannot
// serve now. It backs off when all of them do, and gives up after Config.RetryFor.
// Calls that change state carry an Idempotency-Key that stays the same over these
// retries: a call that succeeds took effect once. A stream of output resumes on
// another node at the same sequence number.
//
// It decodes the bodies and nothing more: it knows no flags, environment
// variables or files, prints nothing, and is not a proxy. All methods may be
// called by any number of goroutines.
package client
