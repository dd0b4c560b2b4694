// Package limit bounds what requests take of a node: bytes and places, of which each
// owner has a share (budget.go, hold.go), requests in a minute (rates.go), repeats of a
// request that is not answered yet (inflight.go), and garbage on the heap (garbage.go).
//
// It is not for HTTP: package edge decides what is counted and for whom.
//
// Rules. Nothing here waits, but for a garbage collection. Errors are those that clients get.
// Everything may be used by several goroutines, except for a Hold, which belongs to one request.
package limit
