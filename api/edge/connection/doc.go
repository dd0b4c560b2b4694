// Package connection has what clients' connections need whatever is asked through them:
// reads and writes with deadlines (request_body.go, answer_body.go), the watch for a
// client that hangs up (watch.go), and ends that clients notice (linger.go).
//
// It is not for HTTP: no request and no answer is known here.
//
// Rules. Nothing waits for a client for longer than a deadline that is set before. Bytes
// that nobody reads are bounded, and so are the connections that they come from.
package connection
