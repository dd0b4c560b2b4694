// Package openai reads and writes the protocol of requests to models, OpenAI's: bodies, of which
// the node needs some fields (body.go, scan.go), and the answers of engines, which it passes
// on while it counts tokens (count.go), charges for them (published.go), ends streams that
// break (stream.go) and engines that are silent (silence.go).
//
// It is not for credentials, limits or replicas: package edge decides who may ask, and which
// engine answers.
//
// Rules. A body is scanned where it lies, and changed as little as needed. A stream is passed on
// as it comes, in whole lines, and a cut one is never taken for a whole one. Reads have
// limits, because engines execute programs of users.
package openai
